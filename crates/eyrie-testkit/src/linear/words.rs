//! Answers as words, which one process can send to another.

use eyrie_engine::{Applied, Attributes, InodeFlags, Kind, ObjectId, Time};

use super::Response;

impl Response {
    /// Returns the words of this answer.
    pub fn to_words(&self) -> Vec<u64> {
        let raw = |id: &Option<ObjectId>| id.map_or(0, ObjectId::raw);
        let with_bytes = |tag, bytes: &[u8]| {
            [&[tag][..], &bytes.iter().map(|&byte| byte.into()).collect::<Vec<_>>()].concat()
        };
        match self {
            Response::Applied(Applied { offset, created, generation }) => {
                vec![0, *offset, (*created).into(), *generation]
            }
            Response::Found(id) => vec![1, raw(id)],
            Response::Bytes(bytes) => with_bytes(2, bytes),
            Response::Value(None) => vec![3],
            Response::Value(Some(value)) => with_bytes(4, value),
            Response::Attributes(it) => {
                let (kind, mode) = (it.kind as u64, it.mode.into());
                let numbers = [it.uid, it.gid, it.links].map(u64::from);
                let times = [it.accessed, it.modified, it.changed];
                let times = times.map(|time| [time.seconds as u64, time.nanoseconds.into()]);
                let rest = [it.size, it.allocated, it.device, raw(&it.parent)];
                [&[5, kind, mode][..], &numbers, times.as_flattened(), &rest].concat()
            }
            Response::InodeFlags(flags) => vec![6, flags.bits().into()],
            Response::Refused(errno) => vec![7, *errno as u64],
        }
    }

    /// Returns the answer with these words. `None` if no answer has them.
    pub fn from_words(words: &[u64]) -> Option<Response> {
        let bytes = |words: &[u64]| words.iter().map(|&word| word as u8).collect();
        Some(match *words {
            [0, offset, created, generation] => {
                Response::Applied(Applied { offset, created: created != 0, generation })
            }
            [1, id] => Response::Found(ObjectId::from_raw(id)),
            [2, ref read @ ..] => Response::Bytes(bytes(read)),
            [3] => Response::Value(None),
            [4, ref value @ ..] => Response::Value(Some(bytes(value))),
            [5, kind, mode, uid, gid, links, a, a_nanos, m, m_nanos, c, c_nanos, ref rest @ ..] => {
                let &[size, allocated, device, parent] = rest else { return None };
                let time = |seconds: u64, nanoseconds: u64| Time::new(seconds as i64, nanoseconds as u32);
                Response::Attributes(Attributes {
                    kind: Kind::from_raw(kind as u8)?,
                    mode: mode as u16,
                    uid: uid as u32,
                    gid: gid as u32,
                    links: links as u32,
                    size,
                    allocated,
                    accessed: time(a, a_nanos),
                    modified: time(m, m_nanos),
                    changed: time(c, c_nanos),
                    device,
                    parent: ObjectId::from_raw(parent),
                })
            }
            [6, flags] => Response::InodeFlags(InodeFlags::from_bits_truncate(flags as u8)),
            [7, errno] => Response::Refused(errno as i32),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_answer_has_words() {
        let (file, dir) = (ObjectId::new(1 << 20, Kind::File), ObjectId::new(1 << 21, Kind::Directory));
        let attributes = Attributes {
            kind: Kind::Directory,
            mode: 0o2755,
            uid: 1,
            gid: 2,
            links: 3,
            size: 4,
            allocated: 5,
            accessed: Time::new(-6, 7),
            modified: Time::new(8, 9),
            changed: Time::new(10, 11),
            device: 12,
            parent: Some(dir),
        };
        for response in [
            Response::Applied(Applied { offset: 1, created: true, generation: 2 }),
            Response::Found(Some(file)),
            Response::Found(None),
            Response::Bytes(vec![]),
            Response::Bytes(vec![0, 255]),
            Response::Value(None),
            Response::Value(Some(vec![])),
            Response::Value(Some(vec![7])),
            Response::Attributes(attributes),
            Response::Attributes(Attributes { parent: None, ..attributes }),
            Response::InodeFlags(InodeFlags::IMMUTABLE),
            Response::Refused(2),
        ] {
            assert_eq!(Response::from_words(&response.to_words()), Some(response));
        }
        assert_eq!(Response::from_words(&[]), None);
        assert_eq!(Response::from_words(&[1]), None);
    }
}
