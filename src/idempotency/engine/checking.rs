//! Checks the engine's settings and its store against the requirements of a use, before a claim.

use super::Engine;
#[cfg(feature = "powertools")]
use crate::store::RecordFormat;
use crate::{
    error::Error,
    idempotency::policy::{AfterUnknown, Heartbeat},
    record::DEFAULT_PAYLOAD_VERSION,
    store::StoreId,
};

/// The requirements of an operation or a service. There is no default, so that each of them must decide on a new
/// requirement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    pub(crate) probe: ProbeNeed,
    /// Whether the engine's scope must separate its records from the records of every other service, because requests
    /// come from anywhere.
    pub(crate) scope: bool,
    /// The store that its transactions write to, if any.
    pub(crate) transactions: Option<StoreId>,
    /// Whether its operations are ordered.
    pub(crate) order: bool,
    pub(crate) heartbeat: Heartbeat,
}

/// The probe of a use, or how to set one.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ProbeNeed {
    Given,
    /// No probe is set. This method sets one.
    Missing(&'static str),
    /// This use does not support probes.
    Unsupported(&'static str),
}

impl ProbeNeed {
    pub(crate) const fn new(is_given: bool, method: &'static str) -> Self {
        if is_given { Self::Given } else { Self::Missing(method) }
    }
}

impl Engine {
    /// Checks the engine's settings, and that they and the store meet the requirements. Must be called before anything
    /// is claimed.
    ///
    /// Services also check their registration, before this. [`check_keys`](Self::check_keys) is a separate check,
    /// because it depends on the tenant of each event.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) for the first check that fails.
    pub(crate) fn check(&self, needs: &Needs) -> Result<(), Error> {
        let Needs { probe, scope, transactions, order, heartbeat } = *needs;
        if !self.settings.disabled {
            self.settings.check()?;
            self.check_probe(probe)?;
            self.check_codec()?;
            self.check_payload_version()?;
            if scope {
                self.settings.check_scope()?;
            }
            if order {
                self.check_order()?;
            }
        }
        if let Some(store) = transactions {
            self.check_store(store)?;
        }
        heartbeat.check()
    }

    /// Refuses a policy whose probe is missing, and a probe that no policy uses.
    fn check_probe(&self, probe: ProbeNeed) -> Result<(), Error> {
        match (self.settings.after_unknown, probe) {
            (AfterUnknown::Probe, ProbeNeed::Missing(method)) => {
                Err(Error::config(format!("AfterUnknown::Probe needs a probe: give one to `{method}`")))
            }
            (AfterUnknown::Probe, ProbeNeed::Unsupported(what)) => Err(Error::config(format!(
                "{what} takes no probe, which AfterUnknown::Probe needs: give it another `after_unknown` by `with_settings`, or run \
                 an operation with a probe in the handler"
            ))),
            (AfterUnknown::Rerun | AfterUnknown::Refuse, ProbeNeed::Given) => {
                Err(Error::config("a probe is given, but it is asked under AfterUnknown::Probe only"))
            }
            _ => Ok(()),
        }
    }

    /// Refuses a codec for results on a store whose records must be readable for AWS Powertools.
    fn check_codec(&self) -> Result<(), Error> {
        if self.settings.codec.is_none() || self.store.format().keeps_every_outcome() {
            return Ok(());
        }
        Err(Error::config(
            "records of AWS Powertools hold no results that are encoded, as Powertools could not read them: leave out `result_codec`",
        ))
    }

    /// Refuses a version of payloads on a store whose records have none.
    fn check_payload_version(&self) -> Result<(), Error> {
        if self.settings.payload_version == DEFAULT_PAYLOAD_VERSION || self.store.format().keeps_every_outcome() {
            return Ok(());
        }
        Err(Error::config("records of AWS Powertools have no version of their payload: leave out `payload_version`"))
    }

    /// Refuses transactions of a store other than the one that records their outcomes.
    fn check_store(&self, id: StoreId) -> Result<(), Error> {
        if self.store.id() == id {
            return Ok(());
        }
        Err(Error::config("a transaction needs the engine's own store: give `in_transaction` a clone of it"))
    }

    /// Refuses ordered operations on a store that does not support orders.
    fn check_order(&self) -> Result<(), Error> {
        if self.store.limits().orders {
            return Ok(());
        }
        Err(Error::config("`ordered_by` needs a store that keeps the order of entities, which this one does not"))
    }

    /// Refuses operations that the store's records do not distinguish from others. Must be called before one is
    /// claimed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config), because keys of AWS Powertools have a prefix instead of the
    /// operation's name, and do not contain the tenant.
    #[cfg_attr(not(feature = "powertools"), expect(unused_variables, reason = "the library's own records do"))]
    pub(crate) fn check_keys(&self, operation: &str, tenant: Option<&str>) -> Result<(), Error> {
        #[cfg(feature = "powertools")]
        if !self.settings.disabled && self.store.format() != RecordFormat::Native {
            return self.only_operation.check(&self.log_name(operation), tenant);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        Idempotency,
        error::ErrorKind,
        future::BoxFuture,
        record::{KeyHash, Record},
        store::{
            Answers, ClaimRequest, Claimed, Limits, RecordFormat, ResultData, SettleRequest, Settled, Store, StoreId,
        },
    };

    /// A store without support for orders, which is never called.
    #[derive(Debug)]
    struct Unordered {
        id: StoreId,
        format: RecordFormat,
    }

    impl Store for Unordered {
        fn claim<'a>(&'a self, _: &'a [ClaimRequest]) -> BoxFuture<'a, Answers<Claimed>> {
            unreachable!()
        }

        fn settle<'a>(&'a self, _: &'a [SettleRequest]) -> BoxFuture<'a, Answers<Settled>> {
            unreachable!()
        }

        fn read<'a>(&'a self, _: &'a [KeyHash], _: ResultData) -> BoxFuture<'a, Answers<Option<Record>>> {
            unreachable!()
        }

        fn id(&self) -> StoreId {
            self.id
        }

        fn format(&self) -> RecordFormat {
            self.format
        }

        fn limits(&self) -> Limits {
            Limits { max_result_bytes: 1, batch: 1, orders: false }
        }

        fn warm_up(&self) -> BoxFuture<'_, Result<(), Error>> {
            unreachable!()
        }
    }

    const NOTHING: Needs = Needs {
        probe: ProbeNeed::Missing("Operation::probe"),
        scope: false,
        transactions: None,
        order: false,
        heartbeat: Heartbeat::AsEngine,
    };

    fn refusals(is_disabled: bool) -> Vec<String> {
        let builder = Idempotency::builder(Unordered { id: StoreId::unique(), format: RecordFormat::Native })
            .disabled(is_disabled);
        let engine = builder.build().unwrap().engine;
        assert!(engine.check(&NOTHING).is_ok());
        let needs = [
            Needs { probe: ProbeNeed::Given, ..NOTHING },
            Needs { scope: true, ..NOTHING },
            Needs { order: true, ..NOTHING },
            Needs { transactions: Some(StoreId::unique()), ..NOTHING },
            Needs { heartbeat: Heartbeat::UpTo(Duration::ZERO), ..NOTHING },
        ];
        let refused = needs.iter().filter_map(|needs| engine.check(needs).err());
        refused.inspect(|error| assert_eq!(error.kind(), ErrorKind::Config)).map(|error| error.to_string()).collect()
    }

    #[test]
    fn each_need_that_is_not_met_is_refused() {
        let refused = refusals(false);
        assert_eq!(refused.len(), 5, "{refused:?}");
        for (error, part) in refused.iter().zip(["a probe is given", "a name", "`ordered_by`", "own store", "zero"]) {
            assert!(error.contains(part), "{error}");
        }
    }

    #[cfg(feature = "powertools")]
    #[test]
    fn a_codec_is_refused_where_powertools_reads_the_records() {
        use crate::{
            idempotency::codec::ResultCodec,
            key::powertools::{Dialect, PowertoolsKeys},
            record::EncodedData,
        };

        #[derive(Debug)]
        struct Codec;

        impl ResultCodec for Codec {
            fn encode(&self, _: &KeyHash, _: &[u8]) -> Result<EncodedData, crate::BoxError> {
                unreachable!()
            }

            fn decode(&self, _: &KeyHash, _: &EncodedData) -> Result<Vec<u8>, crate::BoxError> {
                unreachable!()
            }
        }

        let refusal = |format| {
            let store = Unordered { id: StoreId::unique(), format };
            let engine = Idempotency::builder(store).disabled(false).result_codec(Codec).build().unwrap().engine;
            engine.check(&NOTHING).err()
        };
        assert!(refusal(RecordFormat::Native).is_none());
        let error = refusal(RecordFormat::Powertools(PowertoolsKeys::new(Dialect::Python, "orders"))).unwrap();
        assert!(error.kind() == ErrorKind::Config && error.to_string().contains("`result_codec`"), "{error}");
    }

    #[test]
    fn the_error_for_a_missing_probe_names_where_to_give_one() {
        let store = Unordered { id: StoreId::unique(), format: RecordFormat::Native };
        let builder = Idempotency::builder(store).disabled(false).after_unknown(AfterUnknown::Probe);
        let engine = builder.build().unwrap().engine;
        let refusal = |probe| engine.check(&Needs { probe, ..NOTHING }).unwrap_err().message().to_owned();
        assert_eq!(
            refusal(ProbeNeed::new(false, "BatchService::probe")),
            "AfterUnknown::Probe needs a probe: give one to `BatchService::probe`"
        );
        assert!(
            refusal(ProbeNeed::Unsupported("an invocation layer")).starts_with("an invocation layer takes no probe")
        );
        assert!(engine.check(&Needs { probe: ProbeNeed::new(true, "Operation::probe"), ..NOTHING }).is_ok());
    }

    #[test]
    fn a_disabled_engine_refuses_only_options_handlers_cannot_use() {
        let refused = refusals(true);
        assert_eq!(refused.len(), 2, "{refused:?}");
        assert!(refused[0].contains("own store") && refused[1].contains("zero"), "{refused:?}");
    }
}
