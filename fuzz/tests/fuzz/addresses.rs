//! Addresses of PostgreSQL and Redis, with passwords and options of any characters.

use lambda_once::store::{postgres, redis};
use lambda_once_fuzz::{input::Input, target};

/// A part of every password, which must never appear in an error or in `Debug` output.
const SECRET: &str = "S3CR3T";

/// Draws an address of these schemes and options.
fn address(input: &mut Input<'_>, schemes: &[&str], options: &[&str]) -> String {
    let scheme = *input.pick(schemes);
    // A client takes the text after an @ or / for the host, which is no secret. It must be escaped in a password.
    let secret = format!("{}{SECRET}{}", input.text(2), input.text(2)).replace(['@', '/', '?', '#'], "%40");
    let user = if input.one_in(3) { String::new() } else { format!("u:{secret}@") };
    let host = *input.pick(&["h", "[::1]", "127.0.0.1:6379", "h:5432,i:5433", "", "h:99999", "%2Ftmp"]);
    let path = *input.pick(&["", "/", "/0", "/d", "/%64", "/d/e"]);
    let mut address = format!("{scheme}{user}{host}{path}");
    for i in 0..input.below(4) {
        let value = match input.below(4) {
            0 => input.text(5),
            1 => input.integer().to_string(),
            _ => (*input.pick(&["require", "verify-full", "disable", "resp3", "2", "true", "read-write", "system"]))
                .to_owned(),
        };
        address.push_str(&format!("{}{}={value}", if i == 0 { "?" } else { "&" }, input.pick(options)));
    }
    if input.one_in(6) {
        let at = input.below(address.len() + 1);
        let character = Some(input.character()).filter(|character| !"@/?#".contains(*character));
        address.insert(address.floor_char_boundary(at), character.unwrap_or('x'));
    }
    address
}

fn kind<T>(address: &str, built: Result<T, lambda_once::Error>, shown: &str) -> String {
    assert!(!shown.contains(SECRET), "{address:?}: {shown}");
    match built {
        Ok(_) => "accepted".to_owned(),
        Err(error) => {
            assert_eq!(error.kind(), lambda_once::ErrorKind::Config, "{address:?}");
            let shown = format!("{error} {error:?}");
            assert!(!shown.contains(SECRET), "{address:?}: {shown}");
            error.to_string().split('`').step_by(2).collect::<String>().chars().take(60).collect()
        }
    }
}

target!(
    /// PostgreSQL, as a URL and as keywords.
    postgresql,
    |bytes| {
        let mut input = Input::new(bytes);
        let options = [
            "sslmode", "sslrootcert", "connect_timeout", "application_name", "target_session_attrs", "keepalives", "options",
            "channel_binding", "sslcert", "passfile", "krbsrvname", "load_balance_hosts", "x",
        ];
        let address = if input.one_in(4) {
            let (option, value) = (*input.pick(&options), input.text(5));
            format!("host=h user=u password='{}{SECRET}' {option}={value}", input.text(2))
        } else {
            address(&mut input, &["postgres://", "postgresql://"], &options)
        };
        let built = postgres::Config::from_url(&address);
        let shown = built.as_ref().map(|config| format!("{config:?}")).unwrap_or_default();
        kind(&address, built.and_then(postgres::Config::build), &shown)
    }
);

target!(
    /// Redis, on a node and on a cluster.
    redis_urls,
    |bytes| {
        let mut input = Input::new(bytes);
        let schemes = ["redis://", "rediss://", "redis+unix://", "unix://", "valkey://", "http://", ""];
        let address = address(&mut input, &schemes, &["protocol", "db", "user", "pass", "x"]);
        let config = if input.one_in(3) { redis::Config::cluster([&address]) } else { redis::Config::new(&address) };
        let shown = format!("{config:?}");
        kind(&address, config.build(), &shown)
    }
);
