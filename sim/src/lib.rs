//! A deterministic simulation of lambda-once.
//!
//! The real engine, its batch processor and its HTTP layer run in a simulated [world](simulate) of workers, clients, a
//! queue, a network and a store, in virtual time. One seed is one [history](history::History), and gives the same
//! history each time. A [judge](judge::judge) that shares no code with the library decides whether the history keeps
//! the library's promise. [Bugs](bugs::Bug) planted between the engine and the store show that
//! it finds violations.

pub mod bugs;
pub mod counters;
pub mod history;
pub mod judge;
mod plan;
mod random;
mod world;

pub use world::simulate;
