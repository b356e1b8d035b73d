"""Writes mutants into Rust sources: .venv/rust-syntax/bin/python tools/tests/mutants/rust_syntax.py < REQUEST

REQUEST is JSON: `root`, `files` below it, and `dropped`, the keys of mutants that do not compile. The response is JSON, too: the `mutants`,
in the order of their numbers, and the `texts` of the files, in which `crate::mutation::is(NUMBER)` turns a mutant on. So all
of them are built once. Nothing is copied, so that mutants can be nested: `a && b` becomes `{ let left = a; if left == is(1) { left } else
{ b } }`, which is `a || b` for mutant 1. Comments before and after a place (`/*<1*/` and `/*1>*/`) name its first mutant.
"""

import json
import re
import sys
from pathlib import Path

import tree_sitter
import tree_sitter_rust

PARSER = tree_sitter.Parser(tree_sitter.Language(tree_sitter_rust.language()))
# Code in these cannot call a function at run time, or is no expression.
CONSTANT = ("const_item", "static_item", "const_block", "attribute_item", "inner_attribute_item", "macro_definition", "array_type",
            "enum_variant_list", "use_declaration", "type_item", "line_comment", "block_comment")
# Of each comparison, the one that differs at the bound, and its opposite.
COMPARISONS = {"<": ("<=", ">="), "<=": ("<", ">"), ">": (">=", "<="), ">=": (">", "<")}
ARITHMETIC = {"+": "-", "-": "+", "*": "+", "/": "*", "%": "/"}
ASSIGNMENTS = {"+=": "-=", "-=": "+=", "*=": "+="}
# Results instead of a function's own, by its type. The others are `Default::default()`.
VALUES = {"bool": ("true", "false"), "String": ("String::new()", '"xyzzy".to_owned()')}
NUMBERS = ("u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "i128", "isize")
SHOWN = 100


class Writer:
    """The mutants of a file."""

    def __init__(self, file, source, mutants, dropped):
        self.file, self.source, self.mutants, self.dropped = file, source, mutants, dropped
        self.function = ""
        self.counts = {}

    def text(self, node):
        return self.source[node.start_byte : node.end_byte].decode()

    def shown(self, node):
        text = " ".join(self.text(node).split())
        return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"

    def mutant(self, old, new):
        """Returns the expression that is true for a new mutant, or None if it does not compile."""
        key = f"{self.file} | {self.function} | {old} | {new}"
        self.counts[key] = self.counts.get(key, 0) + 1
        if self.counts[key] > 1:
            key += f" | {self.counts[key]}"
        self.mutants.append(key)
        return None if key in self.dropped else f"crate::mutation::is({len(self.mutants)})"

    def place(self, on, text):
        """Returns a place with a mutant, or with the first of two."""
        number = on[on.index("(") + 1 : on.index(")")]
        return f"/*<{number}*/{text}/*{number}>*/"

    def write(self, node):
        """Returns the text of a node with its mutants."""
        if node.type in CONSTANT:
            return self.text(node)
        if node.type == "function_item":
            return self.write_function(node)
        if node.type == "mod_item" and is_test(node):
            return self.text(node)
        write = {
            "binary_expression": self.write_binary,
            "unary_expression": self.write_unary,
            "compound_assignment_expr": self.write_assignment,
            "match_arm": self.write_arm,
            "boolean_literal": self.write_literal,
            "macro_invocation": self.write_macro,
        }.get(node.type, self.write_children)
        text = write(node)
        if is_condition(node) and self.function:
            always, never = self.mutant(self.shown(node), "true"), self.mutant(self.shown(node), "false")
            if always and never:
                return self.place(always, f"({always} || !{never} && ({text}))")
            if always or never:
                return self.place(always or never, f"({always} || ({text}))" if always else f"(!{never} && ({text}))")
        return text

    def write_children(self, node):
        parts, end = [], node.start_byte
        for child in node.children:
            parts += [self.source[end : child.start_byte].decode(), self.write(child)]
            end = child.end_byte
        return "".join([*parts, self.source[end : node.end_byte].decode()])

    def negated(self, node, text, new):
        on = self.mutant(self.shown(node), new) if self.function else None
        return self.place(on, f"({on} ^ ({text}))") if on else text

    def write_macro(self, node):
        is_test = self.text(node.child_by_field_name("macro")) == "matches" and not is_condition(node)
        return self.negated(node, self.text(node), "!") if is_test and self.function else self.text(node)

    def write_literal(self, node):
        # In a pattern, or in one of the places with other mutants.
        if "pattern" in node.parent.type or is_condition(node):
            return self.text(node)
        return self.negated(node, self.text(node), "!")

    def write_unary(self, node):
        text = self.write_children(node)
        return self.negated(node, text, "without !") if node.children[0].type == "!" and not is_condition(node) else text

    def write_binary(self, node):
        if not self.function:
            return self.write_children(node)
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        operator = self.text(node.child_by_field_name("operator"))
        if operator in ("==", "!="):
            text = self.write_children(node)
            return text if is_condition(node) else self.negated(node, text, "!=" if operator == "==" else "==")
        if operator in ("&&", "||"):
            on = self.mutant(self.shown(node), "|| for &&" if operator == "&&" else "&& for ||")
            if not on:
                return self.write_children(node)
            test = "==" if operator == "&&" else "!="
            branches = f"if left {test} {on} {{ left }} else {{ {self.write(right)} }}"
            return self.place(on, f"({{ let left = {self.write(left)}; {branches} }})")
        if operator in COMPARISONS:
            bound, opposite = (self.mutant(self.shown(node), f"{new} for {operator}") for new in COMPARISONS[operator])
            if not (bound and opposite):
                return self.write_children(node)
            branches = f"if {bound} {{ left {COMPARISONS[operator][0]} right }} else {{ {opposite} ^ (left {operator} right) }}"
            return self.place(bound, f"(match (&({self.write(left)}), &({self.write(right)})) {{ (left, right) => {branches} }})")
        if operator in ARITHMETIC:
            on = self.mutant(self.shown(node), f"{ARITHMETIC[operator]} for {operator}")
            if not on:
                return self.write_children(node)
            branches = f"if {on} {{ left {ARITHMETIC[operator]} right }} else {{ left {operator} right }}"
            return self.place(on, f"(match (({self.write(left)}), ({self.write(right)})) {{ (left, right) => {branches} }})")
        return self.write_children(node)

    def write_assignment(self, node):
        operator = self.text(node.child_by_field_name("operator"))
        on = self.mutant(self.shown(node), f"{ASSIGNMENTS[operator]} for {operator}") if operator in ASSIGNMENTS else None
        if not on:
            return self.write_children(node)
        left, right = self.text(node.child_by_field_name("left")), self.write(node.child_by_field_name("right"))
        branches = f"if {on} {{ {left} {ASSIGNMENTS[operator]} right }} else {{ {left} {operator} right }}"
        return self.place(on, f"{{ let right = {right}; {branches} }}")

    def write_arm(self, node):
        """An arm that does not match. Another arm must match everything."""
        pattern = node.child_by_field_name("pattern")
        arms = [arm for arm in node.parent.children if arm.type == "match_arm"]
        is_covered = self.text(arms[-1].child_by_field_name("pattern")) == "_" and node.id != arms[-1].id
        text = self.write_children(node)
        if not is_covered or pattern.child_by_field_name("condition"):
            return text
        on = self.mutant(f"the arm {self.shown(pattern)}", "deleted")
        # Attributes and patterns have no mutants, so that their length is the source's.
        length = len(self.source[node.start_byte : pattern.end_byte].decode())
        return f"{text[:length]}{self.place(on, f' if !{on}')}{text[length:]}" if on else text

    def write_function(self, node):
        body = node.child_by_field_name("body")
        modifiers = next((self.text(child) for child in node.children if child.type == "function_modifiers"), "")
        if "const" in modifiers.split() or is_test(node):
            return self.text(node)
        outer, self.function = self.function, self.name(node)
        try:
            head = self.source[node.start_byte : body.start_byte].decode()
            opened, rest = "{", self.write_children(body)[1:]
            returned = "".join(self.returned(node, body))
            return f"{head}{opened}{returned}{rest}"
        finally:
            self.function = outer

    def returned(self, node, body):
        """Yields the statements that return another value at the beginning of the function."""
        kind = node.child_by_field_name("return_type")
        for value in values(self.text(kind) if kind else "()"):
            if self.text(body).strip("{} \n") == value or not any(child.is_named for child in body.children):
                continue
            if on := self.mutant("the body", value):
                yield self.place(on, f" if {on} {{ return {value}; }} ")

    def name(self, node):
        """Returns a function's name, after the type of its methods."""
        name, parent = self.text(node.child_by_field_name("name")), node.parent
        while parent and parent.type != "impl_item":
            parent = parent.parent
        if not parent:
            return name
        kind, trait = parent.child_by_field_name("type"), parent.child_by_field_name("trait")
        kind = self.text(kind).partition("<")[0]
        return f"<{kind} as {self.text(trait).partition('<')[0]}>::{name}" if trait else f"{kind}::{name}"


def values(kind):
    """Returns the values that a function of this type can return instead, as expressions. Some of them do not compile."""
    if kind == "()":
        return ("()",)
    if kind in VALUES:
        return VALUES[kind]
    if kind in NUMBERS:
        return ("0", "1")
    if kind.startswith("Option<"):
        return ("None", *(f"Some({value})" for value in values(kind[7:-1])))
    if kind.startswith("Result<"):
        # The type of the error is behind the last comma outside brackets.
        return tuple(f"Ok({value})" for value in values(first_argument(kind[7:-1])))
    if "impl " in kind or "dyn " in kind or kind == "!" or kind.startswith("BoxFuture"):
        return ()
    if kind.startswith("&"):
        return ('""',) if kind.endswith("str") else ()
    return ("Default::default()",)


def first_argument(arguments):
    depth = 0
    for place, character in enumerate(arguments):
        depth += {"<": 1, "(": 1, "[": 1, ">": -1, ")": -1, "]": -1}.get(character, 0)
        if character == "," and depth == 0:
            return arguments[:place].strip()
    return arguments.strip()


def is_condition(node):
    """Returns whether the node is a condition without `let`, or a link of a chain with it."""
    parent = node.parent
    if parent is None or node.type in ("let_condition", "let_chain", "match_pattern"):
        return False
    if parent.type == "let_chain":
        return node.is_named
    condition = parent.child_by_field_name("condition")
    return parent.type in ("if_expression", "while_expression", "match_pattern") and condition is not None and condition.id == node.id


def is_test(node):
    """Returns whether an attribute before the item makes it a test."""
    before = node.prev_named_sibling
    while before is not None and before.type in ("attribute_item", "line_comment", "block_comment"):
        text = before.text.decode()
        if before.type == "attribute_item" and re.search(r"\btest\b", text) and "any(" not in text:
            return True
        before = before.prev_named_sibling
    return False


def main():
    request = json.load(sys.stdin)
    mutants, texts, dropped = [], {}, set(request["dropped"])
    for file in request["files"]:
        source = (Path(request["root"]) / file).read_bytes()
        tree = PARSER.parse(source)
        if tree.root_node.has_error:
            sys.exit(f"{file}: a syntax error")
        writer = Writer(file, source, mutants, dropped)
        # The file's text before its first item and after its last one belongs to no node.
        root = tree.root_node
        texts[file] = source[: root.start_byte].decode() + writer.write(root) + source[root.end_byte :].decode()
    json.dump({"mutants": mutants, "texts": texts}, sys.stdout)


if __name__ == "__main__":
    main()
