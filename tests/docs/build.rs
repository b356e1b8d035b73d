//! Generates a module for README.md and for each page below docs/, with the page as its documentation.

#[path = "src/blocks.rs"]
mod blocks;

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

/// Pages with blocks that the workspace does not compile, because AWS-LC's FIPS module needs CMake and Go.
const WITH_FIPS: &[&str] = &["docs/internals/cold-start"];

/// Adds the pages of a folder and its subfolders.
fn find(folder: &Path, pages: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            find(&path, pages)?;
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = fs::canonicalize(Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../.."))?;
    let output = PathBuf::from(env::var("OUT_DIR")?);
    for name in ["README.md", "docs"] {
        println!("cargo::rerun-if-changed={}", root.join(name).display());
    }
    let mut pages = vec![root.join("README.md")];
    find(&root.join("docs"), &mut pages)?;
    pages.sort();
    let mut modules = String::new();
    for page in &pages {
        let name = page.strip_prefix(&root)?.with_extension("").display().to_string();
        if WITH_FIPS.contains(&&*name) {
            continue;
        }
        let module = name.to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "_");
        let source = blocks::module(&fs::read_to_string(page)?).map_err(|error| format!("{name}.md: {error}"))?;
        let file = output.join(format!("{module}.rs"));
        fs::write(&file, source)?;
        modules += &format!("#[path = {file:?}]\nmod {module};\n");
    }
    Ok(fs::write(output.join("pages.rs"), modules)?)
}
