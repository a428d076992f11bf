//! `secret`: access key → whose it is and the secret with which its holder signs.
//!
//! As in Ozone the access key is the user's name, so a user has one secret.

use ozone_kvstore::{Read, Result, Table};

/// The table.
pub const TABLE: Table = Table("secret");

/// Tags 1–3 in use. The secret is needed in the clear: signatures are made with it.
#[derive(Clone, PartialEq, ::prost::Message)]
#[prost(skip_debug)]
pub struct SecretRow {
    /// 64 hexadecimal digits.
    #[prost(string, tag = "1")]
    pub secret_key: String,
    /// UTC.
    #[prost(uint64, tag = "2")]
    pub created_ms: u64,
    /// Where it is not the access key.
    #[prost(string, tag = "3")]
    pub user: String,
}

impl std::fmt::Debug for SecretRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretRow(..)")
    }
}

/// The row of an access key.
pub fn get(view: &dyn Read, access_key: &str) -> Result<Option<SecretRow>> {
    super::get(view, TABLE, access_key.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn example_and_no_secret_in_debug_output() {
        let row = SecretRow { secret_key: "00ff".into(), created_ms: 1000, user: String::new() };
        crate::tables::test_support::check_example(&row, "secret");
        assert!(!format!("{row:?}").contains("00ff"));
    }
}
