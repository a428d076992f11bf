//! Conditions on the key that is there at the moment of a change (S3, "Conditional requests").

use ozone_common::name::KeyName;
use ozone_common::{Error, ErrorCode};

use super::command::Conditions;
use crate::tables::key::KeyRow;

/// There is no such key.
pub(super) fn no_key(key: &KeyName) -> Error {
    Error::new(ErrorCode::KeyNotFound, format!("key `{key}` does not exist"))
}

impl Conditions {
    /// Judges them.
    ///
    /// # Errors
    /// `KeyAlreadyExists`, `KeyNotFound`, `PreconditionFailed`, `KeyChanged`: the first that does not hold.
    pub fn check(&self, key: &KeyName, existing: Option<&KeyRow>) -> Result<(), Error> {
        let Some(row) = existing else {
            let needs_one = self.if_present || self.if_match.is_some() || self.if_generation != 0;
            return if needs_one { Err(no_key(key)) } else { Ok(()) };
        };
        if self.if_absent {
            return Err(Error::new(ErrorCode::KeyAlreadyExists, format!("key `{key}` exists already")));
        }
        if let Some((md5, parts)) = &self.if_match
            && (*md5 != row.etag_md5 || *parts != row.etag_parts || md5.is_empty())
        {
            let message = format!("key `{key}` has another etag than the condition names");
            return Err(Error::new(ErrorCode::PreconditionFailed, message));
        }
        if self.if_generation != 0 && self.if_generation != row.generation {
            let message = format!("key `{key}` is of generation {}, not {}", row.generation, self.if_generation);
            return Err(Error::new(ErrorCode::KeyChanged, message));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_condition_against_no_key_and_one() {
        let key = KeyName::new("k").unwrap();
        let row = KeyRow { generation: 5, etag_md5: vec![1; 16].into(), etag_parts: 2, ..KeyRow::default() };
        let md5 = |byte, parts| Some((vec![byte; 16].into(), parts));
        let none = Conditions::default();
        for (conditions, absent, present) in [
            (none.clone(), None, None),
            (Conditions { if_absent: true, ..none.clone() }, None, Some(ErrorCode::KeyAlreadyExists)),
            (Conditions { if_present: true, ..none.clone() }, Some(ErrorCode::KeyNotFound), None),
            (Conditions { if_match: md5(1, 2), ..none.clone() }, Some(ErrorCode::KeyNotFound), None),
            (
                Conditions { if_match: md5(1, 0), ..none.clone() },
                Some(ErrorCode::KeyNotFound),
                Some(ErrorCode::PreconditionFailed),
            ),
            (
                Conditions { if_match: md5(2, 2), ..none.clone() },
                Some(ErrorCode::KeyNotFound),
                Some(ErrorCode::PreconditionFailed),
            ),
            (Conditions { if_generation: 5, ..none.clone() }, Some(ErrorCode::KeyNotFound), None),
            (Conditions { if_generation: 6, ..none }, Some(ErrorCode::KeyNotFound), Some(ErrorCode::KeyChanged)),
        ] {
            assert_eq!(conditions.check(&key, None).err().map(|error| error.code), absent, "{conditions:?}");
            assert_eq!(conditions.check(&key, Some(&row)).err().map(|error| error.code), present, "{conditions:?}");
        }
    }
}
