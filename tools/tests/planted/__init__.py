"""Bugs to plant in the sources, by what they break. The rules are those of docs/internals/protocol.md."""

from tools.tests.planted.heartbeat import HEARTBEATS
from tools.tests.planted.operators import AMENDMENTS, LISTS
from tools.tests.planted.order import ORDER
from tools.tests.planted.payloads import FINGERPRINTS
from tools.tests.planted.transactions import TRANSACTIONS

PLANTS = FINGERPRINTS + ORDER + TRANSACTIONS + HEARTBEATS + AMENDMENTS + LISTS
