//! The report as one self-contained page.

use std::{fs, io, path::Path};

use serde::Serialize;

use crate::timeline::Scenario;

const TEMPLATE: &str = include_str!("report.html");
/// Placeholder of the data in the template.
const DATA: &str = "{{data}}";

/// The data of the page.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// The store of the claims, as `STORE` names it.
    pub(crate) store: &'static str,
    /// `true` if every expectation was met.
    pub(crate) passed: bool,
    /// Every deviation.
    pub(crate) faults: Vec<String>,
    /// The timelines.
    pub(crate) scenarios: Vec<Scenario>,
    /// Number of times that each effect occurred.
    pub(crate) ledger: Vec<Line<usize>>,
    /// The payouts that took effect, seller by seller.
    pub(crate) order: Vec<Line<String>>,
}

/// A line of a table: the expected value, the value with protection, and the value without.
#[derive(Debug, Serialize)]
pub(crate) struct Line<T> {
    /// Name of the effect or the seller.
    pub(crate) name: String,
    /// Expected value.
    pub(crate) expected: T,
    /// With protection.
    pub(crate) actual: T,
    /// Without.
    pub(crate) unprotected: T,
}

impl Report {
    /// Writes the page.
    ///
    /// # Errors
    ///
    /// The errors of the file system.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        fs::write(path, page(&serde_json::to_string(self)?))
    }
}

/// The page with this JSON, in which no character can end the element that holds it.
fn page(json: &str) -> String {
    let json = json.replace('&', r"\u0026").replace('<', r"\u003c").replace('>', r"\u003e");
    TEMPLATE.replacen(DATA, &json, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_of_an_event_leaves_the_element_of_the_data() {
        let hostile = "</script><script>alert(1)</script><!-- & {{data}}";
        let page = page(&serde_json::to_string(&hostile).unwrap());
        let (_, rest) = page.split_once(r#"<script type="application/json" id="data">"#).unwrap();
        let (json, _) = rest.split_once("</script>").unwrap();
        assert_eq!(serde_json::from_str::<String>(json).unwrap(), hostile);
        assert_eq!(TEMPLATE.matches(DATA).count(), 1);
    }

    #[test]
    fn the_page_loads_nothing() {
        for loads in ["http:", "https:", "src=", "@import", "url("] {
            let found = TEMPLATE.replace("http://www.w3.org/2000/svg", "").contains(loads);
            assert!(!found, "{loads}");
        }
    }
}
