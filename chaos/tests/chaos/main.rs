//! Tests of the judge: it accepts sound histories, refuses a planted history for each property, and names nothing of the
//! library.

mod consumers;
mod independence;
mod operators;
mod planted;
mod story;
