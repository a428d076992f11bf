//! The program `ozone`.

fn main() {}
