//! Who runs this program.

/// Name of the user of this process: as the system's list has it, else `$USER`, else made of the number.
pub fn invoking_user() -> String {
    let uid = rustix::process::geteuid().as_raw();
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    find(&users, uid)
        .or_else(|| std::env::var("USER").ok().filter(|name| !name.is_empty()))
        .unwrap_or_else(|| format!("uid-{uid}"))
}

fn find(users: &str, uid: u32) -> Option<String> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid) && !name.is_empty()).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_list_is_read() {
        let users = "root:x:0:0:root:/root:/bin/sh\nbroken\n:x:7:7::/:\nalice:x:1000:1000::/home/alice:/bin/sh\n";
        for (uid, name) in [(0, Some("root")), (1000, Some("alice")), (7, None), (1, None)] {
            assert_eq!(find(users, uid).as_deref(), name);
        }
        assert!(!invoking_user().is_empty());
    }
}
