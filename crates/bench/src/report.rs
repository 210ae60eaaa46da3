//! `report`: everything measured, as one HTML page with plots.

mod html;
mod plot;
mod references;

use std::path::PathBuf;

use clap::Args;

use crate::result::{FOLDER, Measured, ResultError};

/// Where results are and where the page goes.
#[derive(Args, Clone, Debug)]
pub struct ReportArguments {
    /// Folder of the results, files as --json writes them.
    #[arg(default_value = FOLDER, value_name = "FOLDER")]
    from: PathBuf,
    /// The page; report.html in the folder of the results where not given.
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
}

/// Render it. Files that hold no result are named and passed over.
pub fn run(arguments: &ReportArguments) -> Result<(), Box<dyn std::error::Error>> {
    let to = arguments
        .to
        .clone()
        .unwrap_or_else(|| arguments.from.join("report.html"));
    let failed = |file: &PathBuf| {
        let file = file.clone();
        move |source| ResultError::File { file, source }
    };
    let entries = std::fs::read_dir(&arguments.from).map_err(failed(&arguments.from))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    let mut results = Vec::new();
    for file in &files {
        match Measured::read(file) {
            Ok(measured) => results.push(measured),
            Err(error) => eprintln!("sluice-bench: {error}"),
        }
    }
    std::fs::write(&to, html::page(&results)).map_err(failed(&to))?;
    println!("{}: {} of {} files", to.display(), results.len(), files.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_renders_the_results_of_a_folder_and_passes_over_others() {
        let folder = std::env::temp_dir().join(format!("sluice-report-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder for temporary files");
        let result = r#"{"bench": "nat-path", "rows": [{"case": "probe", "ns": {"min": 1, "median": 2, "max": 3}}]}"#;
        std::fs::write(folder.join("nat-path.json"), result).expect("a file");
        std::fs::write(folder.join("broken.json"), "{").expect("a file");
        std::fs::write(folder.join("notes.txt"), "no result").expect("a file");
        let arguments = ReportArguments {
            from: folder.clone(),
            to: None,
        };
        run(&arguments).expect("a page");
        let page = std::fs::read_to_string(folder.join("report.html")).expect("the page");
        std::fs::remove_dir_all(&folder).expect("it was made");
        assert!(page.contains("<h2>nat-path</h2>"));
        assert!(page.contains("2.00 (1.00-3.00)"));
    }
}
