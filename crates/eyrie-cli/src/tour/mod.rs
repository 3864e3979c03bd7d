//! `tour`
use crate::arguments::Tour;
use crate::failure::Result;
use crate::output::Output;
pub fn run(_: &Tour, _: &mut Output) -> Result<()> {
    Ok(())
}
