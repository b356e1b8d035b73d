"""Runs a command that may start AWS Powertools: python3 -m tools.tests.powertools -- COMMAND [ARGUMENT ...]

| environment variable | value                                  |
|----------------------|----------------------------------------|
| POWERTOOLS_PYTHON    | Python with the packages of Powertools |
| POWERTOOLS_NODE      | Node.js                                |
| POWERTOOLS_MODULES   | the directory of the Node.js packages  |

python3 -m tools.tests.powertools --write regenerates tests/vectors/powertools.json, the results of both packages for the values below,
which the library's tests compare with its own. The versions are pinned in setup/requirements/powertools.txt and
workers/package-lock.json.
"""

import base64
import gzip
import json
import os
import random
import struct
import subprocess
import sys

from tools.lib import node
from tools.lib.common import ROOT, install, say

WORKERS = ROOT / "tools" / "tests" / "workers"
VECTORS = ROOT / "tests" / "vectors" / "powertools.json"


def environment():
    return {**os.environ, **variables()}


def variables():
    program, modules = node.modules("powertools", "AWS Powertools for TypeScript", WORKERS)
    return {
        "POWERTOOLS_PYTHON": str(install("powertools") / "python"),
        "POWERTOOLS_NODE": str(program),
        "POWERTOOLS_MODULES": str(modules),
        # Both SDKs require them, and DynamoDB Local accepts any.
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
    }


# The values to hash: JSON as a sender may write it.
TEXTS = [
    "null", "true", "false", '""', "[]", "{}", "0", "-0", "1", "-1", "1.0", "-0.0", "0.10", "1e5", "1E5", "1e+5", "100e-2",
    "9007199254740991", "9007199254740992", "9007199254740993", "18446744073709551615", "18446744073709551616",
    "-123456789012345678901234567890", "1e15", "1e16", "1e17", "123456789012345.6", "1234567890123456.7", "9999999999999998.0",
    "1e20", "1e21", "1e22", "1.5e21", "123456789012345680000", "0.0001", "0.00001", "0.000001", "0.0000001", "1.5e-7",
    "1.7976931348623157e308", "5e-324", "4.9e-324", "2.2250738585072014e-308", "1e400", "-1e400", "1e-400", "-1e-400",
    "0.1", "0.30000000000000004", "4.35", "1e23", "9.5367431640625e-7", "8.41e21", "2.0e-3", "179769313486231570000e288",
    r'"plain"', r'"\"\\\/\b\f\n\r\t"', r'"\u0000\u0001\u001f\u007f\u0080\u00e9"', '"é😀\u2028\u2029"', r'"\ud83d\ude00"', '"\x7f"',
    '"</script>"', '"\uffff\ufffd"', '"\U00010000"',
    '{"b":1,"a":2}', '{"B":1,"a":2}', '{"b":1,"A":2}', '{"_":1,"a":2,"Z":3,"^":4,"~":5}', '{"10":1,"9":2,"a":3,"01":4,"-1":5}',
    '{"b":0,"4294967294":1,"4294967295":2,"4294967296":3,"1":4,"1.5":5,"1e3":6}', '{"é":1,"É1":2,"e":3,"z":4}',
    '{"\uffff":1,"\U00010000":2,"\ue000":3}', '{"ΑΣ":1,"ας1":2,"ΑΣΑ":3}', '{"İ":1,"i":2,"I1":3}', '{"ß":1,"SS":2,"ẞ1":3}',
    '{"__proto__":1,"a":2}', '{"__proto__":{"x":1},"a":2}', '{"constructor":1,"toString":2,"hasOwnProperty":3}',
    '{"":1,"a":{"":[]}}', '{"a b":1,"a":2,"a\\n":3,"a\\u0001":4}', '[[],{},[{}],{"a":[]}]', '[null,[null],{"a":null}]',
    '["user",7]', '["user",null]', '[1,1.0,"1",true,null]', ' { "b" : [ 1 , 2.50 ] , "a" : "x" } ',
    '{"Records":[{"messageId":"m-1","body":"{\\"order_id\\": 7}","attributes":{"SentTimestamp":"1523232000000"}}]}',
]

# Expressions, and the values that they are applied to.
EXPRESSIONS = [
    ("powertools_base64(v)", text)
    for text in [
        base64.b64encode(b"").decode(), "YQ==", "YWI=", "YWJj", base64.b64encode("é😀\n".encode()).decode(),
        # Not UTF-8, missing padding, too little padding, an extra character, spaces and line breaks.
        base64.b64encode(b"\xff\xfe").decode(), "YQ", "YQ=", "YWJjZ", "YW\nJj\r\n", " Y Q = = ", "YR==",
    ]
] + [
    ("powertools_base64_gzip(v)", base64.b64encode(data).decode())
    for data in [
        gzip.compress(b'{"id":7}', mtime=0), gzip.compress(b"", mtime=0), gzip.compress("é".encode(), mtime=1), b"",
        gzip.compress(b"a", mtime=0) + gzip.compress(b"b", mtime=0), gzip.compress(b"a", mtime=0) + b"\0\0\0",
        gzip.compress(b"a", mtime=0) + b"trailing", gzip.compress(b"abc", mtime=0)[:-1], gzip.compress(b"abc", mtime=0)[:-9],
        gzip.compress(b"abc", mtime=0)[:9], gzip.compress(b"abc", mtime=0)[:-8] + b"\0\0\0\0\3\0\0\0",
        gzip.compress(b"abc", mtime=0)[:-4] + b"\4\0\0\0", gzip.compress(b"\xff", mtime=0), b"not gzip at all",
        # With every optional field: extra, name, comment and a checksum of the header, which is not checked.
        b"\x1f\x8b\x08\x1e\0\0\0\0\0\x03\x02\0xxname\0comment\0\0\0" + gzip.compress(b"abc", mtime=0)[10:],
        b"\x1f\x8b\x07" + gzip.compress(b"abc", mtime=0)[3:],
    ]
] + [
    ("powertools_json(powertools_base64_gzip(v)).id", base64.b64encode(gzip.compress(b'{"id":7}', mtime=0)).decode()),
    ("powertools_json(powertools_base64(v)).id", base64.b64encode(b'{"id":7}').decode()),
]


def random_texts(count):
    """Generates random values, always the same. No object has two names that differ only in case."""
    random_of = random.Random(20261123)
    letters = "aAbBzZ09_-~ é\"\\/\n\t\x7f\u00df\u0130\u03a3\u2028\uffff😀\U00010400"

    def string():
        return "".join(random_of.choices(letters, k=random_of.randrange(6)))

    def number():
        match random_of.randrange(7):
            case 6:
                # Halfway between two equally short texts, of which both packages choose the even one.
                return repr(random_of.randrange(2**51, 2**53) / 4)
            case 0:
                return str(random_of.randrange(-10, 10))
            case 1:
                return str(random_of.randrange(-(10**25), 10**25))
            case 2:
                return repr(random_of.randrange(-(10**6), 10**6) / 10 ** random_of.randrange(8))
            case 3:
                return f"{random_of.randrange(1, 10**17)}e{random_of.randrange(-40, 40)}"
            case _:
                double = struct.unpack("d", random_of.randbytes(8))[0]
                return repr(double) if double - double == 0 else "0"

    def value(depth):
        match random_of.randrange(4 if depth == 0 else 6):
            case 0:
                return number()
            case 1:
                return json.dumps(string(), ensure_ascii=random_of.random() < 0.5)
            case 2:
                return random_of.choice(["null", "true", "false", number()])
            case 3:
                return number()
            case 4:
                return "[" + ",".join(value(depth - 1) for _ in range(random_of.randrange(4))) + "]"
            case _:
                names = {name.lower(): name for name in (random_of.choice([string(), number()]) for _ in range(4))}
                members = [f"{json.dumps(name)}:{value(depth - 1)}" for name in names.values()]
                random_of.shuffle(members)
                return "{" + ",".join(members) + "}"

    return [f"[{value(2)},{value(3)},{value(3)}]" for _ in range(count)]


def ask(command, requests, env):
    """Returns the responses of a worker."""
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    done = subprocess.run(command, input=lines, stdout=subprocess.PIPE, text=True, check=True, env=env)
    return [json.loads(line) for line in done.stdout.split("\n") if line]


def write(env):
    python = [env["POWERTOOLS_PYTHON"], WORKERS / "worker.py"]
    typescript = [env["POWERTOOLS_NODE"], WORKERS / "worker.mjs"]
    texts = TEXTS + random_texts(120)
    requests = [{"do": "text", "data": text} for text in texts]
    hashes = [
        {"json": text, "python": in_python, "typescript": in_typescript}
        for text, in_python, in_typescript in zip(texts, ask(python, requests, env), ask(typescript, requests, env), strict=True)
    ]
    requests = [
        {"do": "expression", "expression": expression, "data": json.dumps({"v": value})} for expression, value in EXPRESSIONS
    ]
    found = [
        {"expression": request["expression"], "json": request["data"], "python": answer}
        for request, answer in zip(requests, ask(python, requests, env), strict=True)
    ]
    # ASCII, one entry per line, because exact characters and differences between versions matter.
    lines = {name: ",\n".join(map(json.dumps, entries)) for name, entries in (("hashes", hashes), ("expressions", found))}
    VECTORS.parent.mkdir(parents=True, exist_ok=True)
    VECTORS.write_text("{" + ",\n".join(f'"{name}": [\n{text}\n]' for name, text in lines.items()) + "}\n")
    say(f"{len(hashes)} values and {len(found)} expressions written to {VECTORS.relative_to(ROOT)}")


def main():
    arguments = sys.argv[1:]
    if arguments == ["--write"]:
        return write(environment())
    if arguments[:1] != ["--"] or len(arguments) == 1:
        sys.exit(__doc__)
    env = environment()
    os.execvpe(arguments[1], arguments[1:], env)


if __name__ == "__main__":
    main()
