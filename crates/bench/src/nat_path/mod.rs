//! `nat-path`.

use crate::rows::Run;

/// Run it.
pub fn run(_run: &mut Run<'_>) -> Result<(), Box<dyn std::error::Error>> {
    Ok(())
}
