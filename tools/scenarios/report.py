"""Opens the report of `make demo` in a headless Chromium: python3 -m tools.scenarios.report [--required | --picture]

It checks that each recorded event has a mark, that pointer and keyboard show the explanation of a mark, and that the page fits
400 pixels and has both color schemes. --picture writes the chart in docs/. Without a browser or a report the check is skipped, or
fails with --required.
"""

import struct
import sys
import tempfile
import zlib
from pathlib import Path

from tools.lib import chromium
from tools.lib.builds import TARGET
from tools.lib.common import ROOT, exit_on_signals, say

REPORT = TARGET / "demo" / "report.html"
PAGE = Path(__file__).with_name("report.html")
PICTURES = {"light": ROOT / "docs" / "demo-report.svg", "dark": ROOT / "docs" / "demo-report-dark.svg"}
# The scenario in the picture.
SCENARIO = "orders"
MOST_BYTES = 150_000
# Blink's number of each scheme, and the color of the page in it.
SCHEMES = {"light": (1, (255, 255, 255)), "dark": (0, (13, 17, 23))}
# A page without charts has fewer distinct lines of pixels.
FEWEST_LINES = 300


def failures(read):
    """Returns the failed checks at one width."""
    doubles = read["events"].get("double", 0)
    checks = {
        "each kind of event has the right number of marks": read["marks"] == read["events"],
        "there are no other marks": read["all"] == sum(read["events"].values()),
        "each event is in a table": read["tableRows"] == sum(read["events"].values()),
        "the ledger is complete": read["ledger"][0] == read["ledger"][1] > 0,
        "the unprotected run has double effects": doubles > 0,
        "claims, runs and a takeover are recorded": {"claim", "run", "takeover", "effect", "delivery"} <= read["events"].keys(),
        "no mark is outside its chart": read["outside"] == 0,
        "nothing is wider than the page": read["overflow"] <= 0,
        "each chart is one stop of the Tab key": read["stops"] == read["charts"],
        "the mark with the focus is explained": explains(read["focused"]),
        "an arrow key moves to the next mark": explains(read["moved"]) and read["moved"]["label"] != read["focused"]["label"],
        "another arrow key moves to the next row": explains(read["down"]) and read["down"]["row"] != read["moved"]["row"],
        "Escape hides the explanation": read["escaped"]["tip"] is None,
        "the mark under the pointer is explained": explains(read["hovered"]),
    }
    return [f"at {read['width']} pixels: {check}" for check, holds in checks.items() if not holds]


def explains(shown):
    """Returns whether the shown explanation is the mark's label."""
    words = [text.replace(".", "").split() for text in (shown["tip"] or "", shown["label"])]
    return bool(words[0]) and "".join(words[0]) == "".join(words[1])


def screenshot_failures(browser, url):
    """Returns the problems of the page's appearance in each color scheme."""
    wrong = []
    for scheme, (number, colour) in SCHEMES.items():
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "page.png"
            _, console = chromium.run(
                browser, url, f"--blink-settings=preferredColorScheme={number}", "--window-size=1080,2000", f"--screenshot={path}"
            )
            corner, lines = pixels(path.read_bytes())
        wrong += console
        if corner != colour:
            wrong.append(f"the {scheme} page is {corner}, not {colour}")
        if lines < FEWEST_LINES:
            wrong.append(f"the {scheme} page is nearly empty")
    return wrong


def pixels(png):
    """Returns the first pixel of a PNG, and the number of its distinct lines."""
    at, data = 8, b""
    while at < len(png):
        (size,), kind = struct.unpack(">I", png[at : at + 4]), png[at + 4 : at + 8]
        content = png[at + 8 : at + 8 + size]
        if kind == b"IHDR":
            width, height, depth, colours = struct.unpack(">IIBB", content[:10])
        elif kind == b"IDAT":
            data += content
        at += size + 12
    samples = {2: 3, 6: 4}[colours]
    if depth != 8:
        sys.exit(f"a screenshot with {depth} bits per sample")
    raw = zlib.decompress(data)
    stride = width * samples + 1
    # Every filter leaves the first pixel unchanged.
    lines = {raw[line * stride : (line + 1) * stride] for line in range(height)}
    return tuple(raw[1:4]), len(lines)


def write_pictures(browser, url):
    read, _ = chromium.visit(browser, f"{url}?picture={SCENARIO}")
    for scheme, path in PICTURES.items():
        svg = read[scheme] + "\n"
        if len(svg) > MOST_BYTES:
            sys.exit(f"the picture has {len(svg)} bytes, at most {MOST_BYTES} are allowed")
        path.write_text(svg)
        print(f"{path.relative_to(ROOT)}: {len(svg)} bytes")


def main():
    arguments = sys.argv[1:]
    if arguments not in ([], ["--required"], ["--picture"]):
        sys.exit(__doc__)
    browser = chromium.find(required=bool(arguments))
    if browser is None:
        return
    if not REPORT.is_file():
        message = "there is no report; `make demo` writes it"
        if arguments:
            sys.exit(message)
        say(f"skipped: {message}")
        return
    exit_on_signals()
    with chromium.serve({"/": PAGE, "/report.html": REPORT}) as url:
        if arguments == ["--picture"]:
            write_pictures(browser, url)
            return
        read, found = chromium.visit(browser, url)
        if "error" in read:
            sys.exit(read["error"])
        found += [failure for at_width in read for failure in failures(at_width)]
        found += screenshot_failures(browser, f"{url}report.html")
    for failure in found:
        print(f"failed: {failure}", file=sys.stderr)
    if found:
        sys.exit(1)
    print(f"the demo's report shows each of its {read[0]['all']} events, by pointer and keyboard, at two widths and in both color schemes")


if __name__ == "__main__":
    main()
