//! End to end: the built program, real clients, real signals. One binary, a module per client or topic.

#![expect(clippy::disallowed_methods, reason = "tests look at files from outside of the program")]

mod aws_cli;
mod boto3;
mod dev_command;
mod freon;
mod kill_all;
mod kill_one_datanode;
mod memory;
mod shell;
