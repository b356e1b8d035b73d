"""MiniStack, a local endpoint of AWS: SQS, Lambda, CloudFormation and more."""

import os

from tools.lib.common import answers, install

from .process import Server


def settings(port):
    """Returns the variables of a MiniStack on this port of this machine alone."""
    # The two disabled listeners would be open to the network.
    return {"BIND_HOST": "127.0.0.1", "GATEWAY_PORT": str(port), "IOT_MTLS_ENABLED": "0", "SFTP_ENABLED": "0"}


class MiniStack(Server):
    @classmethod
    def fetch(cls):
        install("ministack")

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    @property
    def env(self):
        return {**os.environ, **settings(self.port), "TMPDIR": str(self.home)}

    def command(self):
        return [install("ministack") / "ministack"]

    def is_up(self):
        return answers(f"{self.url}/_ministack/health")
