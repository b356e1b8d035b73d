"""The mutations of the sources, by the rules of docs/internals/protocol.md that they break."""

from tools.tests.planted.heartbeat import HEARTBEATS
from tools.tests.planted.operators import AMENDMENTS, LISTS
from tools.tests.planted.order import ORDER
from tools.tests.planted.payloads import FINGERPRINTS
from tools.tests.planted.transactions import TRANSACTIONS

PLANTS = FINGERPRINTS + ORDER + TRANSACTIONS + HEARTBEATS + AMENDMENTS + LISTS
