//! The services of `examples/services/`, each as several processes on one simulated machine.
//!
//! This process serves the machine, and starts the programs that cargo has built beside this test.
//! Everything waited for has a deadline, and no process outlives its test.

mod awaiting;
mod echo;
mod kills;
mod kv_store;
mod lock;
mod machine;
mod replicated_log;
mod shutdown;
mod two_processes;
mod usage;
mod withheld;
