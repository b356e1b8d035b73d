//! Prints the results and writes the page.

use std::{fmt::Write, fs, path::Path, process::Command};

use anyhow::Result;

use crate::{
    chart::{self, Chart},
    table::Table,
    targets::{self, Target},
    update,
};

const PAGE: &str = "docs/internals/benchmark.md";
const CHART: &str = "docs/internals/benchmark.svg";

/// The results of a part of the benchmark.
pub(crate) struct Section {
    pub(crate) title: &'static str,
    /// A description of the measurement, in Markdown.
    pub(crate) text: &'static str,
    pub(crate) tables: Vec<Table>,
    pub(crate) targets: Vec<Target>,
    pub(crate) charts: Vec<Chart>,
}

impl Section {
    fn markdown(&self) -> String {
        let mut text = format!("## {}\n\n{}", self.title, self.text);
        for table in &self.tables {
            let _ = write!(text, "\n{}", table.markdown("###"));
        }
        text
    }
}

/// All sections.
#[derive(Default)]
pub(crate) struct Page {
    sections: Vec<Section>,
}

impl Page {
    pub(crate) fn add(&mut self, section: Section) {
        self.sections.push(section);
    }

    fn targets(&self) -> Table {
        targets::table(self.sections.iter().flat_map(|section| &section.targets))
    }

    /// Prints tables and targets to standard output.
    pub(crate) fn print(&self) {
        for table in self.sections.iter().flat_map(|section| &section.tables) {
            print!("{}", table.text());
        }
        print!("{}", self.targets().text());
    }

    /// Writes the page and its chart to the repository's `docs`: all of it, or only the measured sections.
    pub(crate) fn write(&self, complete: bool) -> Result<()> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let charts: Vec<&Chart> = self.sections.iter().flat_map(|section| &section.charts).collect();
        if !charts.is_empty() {
            fs::write(root.join(CHART), chart::svg(charts.into_iter()))?;
            eprintln!("-- wrote {CHART}");
        }
        let page = root.join(PAGE);
        let text = if complete { self.markdown() } else { self.update(fs::read_to_string(&page)?)? };
        fs::write(page, text)?;
        eprintln!("-- wrote {PAGE}");
        Ok(())
    }

    fn update(&self, mut text: String) -> Result<String> {
        for section in &self.sections {
            text = update::replace_section(&text, section.title, &section.markdown())?;
        }
        update::replace_rows(&text, self.targets())
    }

    fn markdown(&self) -> String {
        let mut text = include_str!("page.md").replace("{machine}", &machine());
        for section in &self.sections {
            let _ = write!(text, "\n{}", section.markdown());
        }
        let _ = write!(text, "\n{}", self.targets().markdown("##"));
        text
    }
}

/// Returns a description of the machine that was used.
fn machine() -> String {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model =
        cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ").map(|(_, name)| name));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let rustc = Command::new("rustc").arg("--version").output().ok();
    let rustc = rustc.and_then(|output| String::from_utf8(output.stdout).ok()).unwrap_or_default();
    format!(
        "{}, {cores} cores, Linux {}, {}",
        model.unwrap_or("unknown CPU"),
        read("/proc/sys/kernel/osrelease").trim(),
        rustc.trim()
    )
}
