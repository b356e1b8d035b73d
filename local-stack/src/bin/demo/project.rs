//! Paths in the repository.

use std::{
    env,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

/// The repository the demo runs in.
#[derive(Debug)]
pub(crate) struct Project {
    root: PathBuf,
}

impl Project {
    /// The nearest directory, from the current one upwards, that holds the functions and events.
    pub(crate) fn find() -> Result<Self> {
        let current = env::current_dir().context("the current directory cannot be read")?;
        current
            .ancestors()
            .find(|dir| dir.join("functions/Cargo.toml").is_file() && dir.join("events").is_dir())
            .map(|root| Self { root: root.to_owned() })
            .with_context(|| {
                format!(
                    "found neither functions/ nor events/ in {} or above it: run the demo in the repository",
                    current.display()
                )
            })
    }

    /// The repository's directory.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The events to send.
    pub(crate) fn events(&self) -> PathBuf {
        self.root.join("events")
    }

    /// The package of the functions, where `cargo lambda watch` runs.
    pub(crate) fn functions(&self) -> PathBuf {
        self.root.join("functions")
    }

    /// Output directory of the demo, for its logs and the report.
    pub(crate) fn output(&self) -> PathBuf {
        self.target().join("demo")
    }

    /// Cargo's target directory.
    pub(crate) fn target(&self) -> PathBuf {
        let configured = env::var_os("CARGO_TARGET_DIR");
        self.root.join(configured.as_deref().map_or(Path::new("target"), Path::new))
    }
}
