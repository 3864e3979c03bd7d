//! Crashes inside recovery: what is left then must be what the first crash may leave.

use eyrie_engine::scm::Scm;
use eyrie_medium::{CrashImage, CrashPoints, Event, Medium, Plan, Recorder};

use super::recovered::{Expected, caught, examine_caught};
use super::run::{NoImage, check_picks, point_after};

/// A crash inside a recovery.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Again {
    /// Events of the recovery before it (a count).
    pub after: usize,
    /// Which of its contents each line had that was looked at.
    pub picks: Vec<usize>,
}

/// The recovery of one image.
pub(super) struct Recovery {
    image: Vec<u8>,
    pub(super) events: Vec<Event>,
}

impl Recovery {
    /// Opens a volume with these bytes, without what the plan leaves out.
    pub(super) fn of(image: Vec<u8>, plan: &Plan) -> Result<Recovery, String> {
        let recorder = Recorder::of(plan.clone());
        let medium = Medium::traced_from(&image, recorder.clone()).map_err(|error| error.to_string())?;
        let opened = caught(|| Scm::open_on(medium).map(drop))?;
        opened.map_err(|error| format!("open: {error}"))?;
        Ok(Recovery { image, events: recorder.take() })
    }

    fn points(&self) -> Result<CrashPoints<'_>, String> {
        CrashPoints::new(&self.image, &self.events).map_err(|error| error.to_string())
    }

    /// Crashes everywhere, and opens at most `most` images of each crash. How many those were, and the first that is not
    /// as it must be, if one is not.
    pub(super) fn explore(
        &self,
        most: u64,
        expected: &Expected<'_>,
    ) -> Result<(u64, Option<(Again, String)>), String> {
        let expected = expected.again();
        let mut points = self.points()?;
        let mut all = 0;
        while let Some(point) = points.next() {
            let mut images = 0;
            let mut next = Some(Vec::new());
            while let Some(picks) = next.filter(|_| images < most) {
                images += 1;
                match examine_caught(points.base(), &point, picks.clone(), &expected) {
                    Ok((choices, _)) => next = CrashImage::next_script(&choices),
                    Err(what) => {
                        return Ok((all + images, Some((Again { after: point.after, picks }, what))));
                    }
                }
            }
            all += images;
        }
        Ok((all, None))
    }

    /// Opens the image of one crash again; what is wrong with it, if something is.
    pub(super) fn replay(&self, again: &Again, expected: &Expected<'_>) -> Result<Option<String>, NoImage> {
        let Again { after, picks } = again;
        let mut points = self.points().map_err(|_| NoImage::Point { after: *after })?;
        let point = point_after(&mut points, *after)?;
        match examine_caught(points.base(), &point, picks.clone(), &expected.again()) {
            Ok((choices, _)) => check_picks(picks, &choices).map(|()| None),
            Err(what) => Ok(Some(what)),
        }
    }
}
