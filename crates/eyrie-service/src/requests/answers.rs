//! The values of answers.

use eyrie_client::protocol::{LaneAnswer, LaneRequest, send_error};
use eyrie_client::sent::{SentQuota, account_of};
use eyrie_engine::access::{Credentials, sees_quota};
use eyrie_engine::scm::Scm;
use eyrie_engine::{Engine, Result};
use zerocopy::IntoBytes;

/// Maximum number of accounts in one answer.
const MOST_ACCOUNTS: usize = 1024;

/// The values of an answer.
#[derive(Default)]
pub struct Done {
    pub number: u64,
    pub second_number: u64,
    pub data: Vec<u8>,
    /// True if the request gets its answer later.
    pub waits: bool,
}

impl Done {
    pub fn words(words: &[u64]) -> Done {
        Done { data: words.iter().flat_map(|word| word.to_le_bytes()).collect(), ..Done::default() }
    }
}

/// Returns the answer with the result of a request, and its data. `None` if the request gets its answer
/// later.
pub fn answer_of(done: Result<Done>) -> Option<(LaneAnswer, Vec<u8>)> {
    match done {
        Ok(Done { waits: true, .. }) => None,
        Ok(Done { number, second_number, data, .. }) => {
            Some((LaneAnswer { error: 0, data_bytes: 0, number, second_number }, data))
        }
        Err(error) => {
            let (error, number, text) = send_error(&error);
            Some((LaneAnswer { error, data_bytes: 0, number, second_number: 0 }, text.into_bytes()))
        }
    }
}

/// Returns some of the accounts that a user may see, from the number of the request on, and the number of all
/// accounts that the user may see. If the request names an account, returns only this one.
pub fn quotas(engine: &Scm, who: &Credentials, request: &LaneRequest) -> Result<Done> {
    let reports = match account_of(request.id) {
        Some(id) => engine.quota(id)?.map(|report| vec![report]),
        None => engine.quotas()?,
    };
    let Some(reports) = reports else { return Ok(Done::default()) };
    let seen: Vec<_> = reports.iter().filter(|report| sees_quota(who, report.id)).collect();
    let sent = seen.iter().skip(request.number as usize).take(MOST_ACCOUNTS);
    let data = sent.flat_map(|report| SentQuota::of(report).as_bytes().to_vec()).collect();
    Ok(Done { number: 1, second_number: seen.len() as u64, data, waits: false })
}
