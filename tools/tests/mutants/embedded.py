"""Mutants of texts that are embedded in the test program."""

import hashlib

from tools.lib.common import ROOT
from tools.tests.mutants.tokens import tokens


class Embedded:
    """The texts of one language."""

    def __init__(self, language, module, folder):
        self.module = module
        self.texts = {file.name: file.read_text() for file in sorted((ROOT / folder).glob(f"*.{language}"))}

    def prepare(self, program):
        self.program = program
        if stale := [name for name, text in self.texts.items() if not program.has(text)]:
            raise SystemExit(f"the test program has other texts of {', '.join(stale)}")

    def mutants(self):
        return [mutant for name, text in self.texts.items() for mutant in self.module.of(name, text)]

    def key(self, mutant):
        """Names the mutant and the code around it, without comments."""
        code = " ".join(token.text for token in tokens(self.texts[mutant.file]))
        return " | ".join([*map(str, mutant.identity()), hashlib.sha256(code.encode()).hexdigest()[:12]])

    def applied(self, mutant):
        text = self.texts[mutant.file]
        return self.program.with_text(text, mutant.apply(text))
