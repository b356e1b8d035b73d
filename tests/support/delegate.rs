//! The methods that a wrapper of a store does not change.

/// Writes methods of [`Store`](lambda_once::Store) that call the store in a field, as in
/// `delegate!(records: read, id)`.
#[allow(unused_macros, reason = "not every test binary wraps a store")]
macro_rules! delegate {
    ($field:tt: $($method:ident),+) => {
        $($crate::support::delegate::delegate!(@$method $field);)+
    };
    (@claim $field:tt) => {
        fn claim<'a>(
            &'a self,
            requests: &'a [lambda_once::store::ClaimRequest],
        ) -> lambda_once::BoxFuture<'a, lambda_once::store::Answers<lambda_once::store::Claimed>> {
            lambda_once::Store::claim(&self.$field, requests)
        }
    };
    (@settle $field:tt) => {
        fn settle<'a>(
            &'a self,
            requests: &'a [lambda_once::store::SettleRequest],
        ) -> lambda_once::BoxFuture<'a, lambda_once::store::Answers<lambda_once::store::Settled>> {
            lambda_once::Store::settle(&self.$field, requests)
        }
    };
    (@read $field:tt) => {
        fn read<'a>(
            &'a self,
            keys: &'a [lambda_once::record::KeyHash],
            data: lambda_once::store::ResultData,
        ) -> lambda_once::BoxFuture<'a, lambda_once::store::Answers<Option<lambda_once::record::Record>>> {
            lambda_once::Store::read(&self.$field, keys, data)
        }
    };
    (@limits $field:tt) => {
        fn limits(&self) -> lambda_once::store::Limits {
            lambda_once::Store::limits(&self.$field)
        }
    };
    (@id $field:tt) => {
        fn id(&self) -> lambda_once::store::StoreId {
            lambda_once::Store::id(&self.$field)
        }
    };
    (@warm_up $field:tt) => {
        fn warm_up(&self) -> lambda_once::BoxFuture<'_, Result<(), lambda_once::Error>> {
            lambda_once::Store::warm_up(&self.$field)
        }
    };
}
#[allow(unused_imports, reason = "not every test binary wraps a store")]
pub(crate) use delegate;
