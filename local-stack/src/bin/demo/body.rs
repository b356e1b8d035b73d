//! The bodies that the functions behind queues accept.

use serde::{Deserialize, de::DeserializeOwned};

use crate::emulator::{ORDERS, PAYOUTS};

/// A function behind a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Function {
    /// Books orders, from a standard queue.
    Orders,
    /// Pays sellers, from a FIFO queue.
    Payouts,
}

impl Function {
    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Orders => ORDERS,
            Self::Payouts => PAYOUTS,
        }
    }

    /// The name of its effect in the ledger.
    pub(crate) fn operation(self) -> &'static str {
        match self {
            Self::Orders => "order",
            Self::Payouts => "payout",
        }
    }

    /// Whether its queue is FIFO.
    pub(crate) fn is_fifo(self) -> bool {
        self == Self::Payouts
    }

    /// Returns the body as the function reads it, if it accepts it.
    pub(crate) fn read(self, body: &str) -> Option<Body> {
        match self {
            Self::Orders => read::<Order>(body),
            Self::Payouts => read::<Payout>(body),
        }
    }
}

fn read<T: DeserializeOwned + Into<Body>>(body: &str) -> Option<Body> {
    serde_json::from_str::<T>(body).ok().map(Into::into)
}

/// A body that its function accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Body {
    /// The id of the order or the payout.
    pub(crate) key: String,
    /// The other fields that distinguish it: the party, the amount and the currency.
    rest: (String, u64, String),
    /// The failure that it requests.
    pub(crate) simulate: Option<Simulation>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Order {
    order_id: String,
    customer_id: String,
    amount_cents: u64,
    currency: String,
    simulate: Option<Simulation>,
}

impl From<Order> for Body {
    fn from(order: Order) -> Self {
        let Order { order_id, customer_id, amount_cents, currency, simulate } = order;
        Self { key: order_id, rest: (customer_id, amount_cents, currency), simulate }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Payout {
    payout_id: String,
    seller_id: String,
    amount_cents: u64,
    currency: String,
    simulate: Option<Simulation>,
}

impl From<Payout> for Body {
    fn from(payout: Payout) -> Self {
        let Payout { payout_id, seller_id, amount_cents, currency, simulate } = payout;
        Self { key: payout_id, rest: (seller_id, amount_cents, currency), simulate }
    }
}

/// The failure that a body requests from the handler.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Simulation {
    /// The outcome instead of the effect.
    pub(crate) outcome: Option<Trouble>,
    /// The last receive it happens on; absent means that it always happens.
    pub(crate) until_receive: Option<u32>,
    /// The duration of the handler.
    #[serde(rename = "delay_ms")]
    pub(crate) delay: Option<u64>,
}

/// The failure of a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Trouble {
    /// An error that may pass.
    Transient,
    /// An error that is remembered.
    Permanent,
    /// A panic.
    Panic,
    /// A handler that never returns.
    Hang,
}
