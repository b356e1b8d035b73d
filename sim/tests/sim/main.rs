//! Tests of the simulation: its judge, its determinism, and the bugs that it finds.

mod bugs;
mod independence;
mod planted;
mod replay;
