//! The owner of a session, in simulated schedules and in single scenarios, and the gateway with its requests to other servers.

mod absence;
#[cfg(feature = "gateway")]
mod agent_calls;
#[cfg(feature = "client")]
mod car_purchase;
mod clears;
mod closed;
#[cfg(feature = "gateway")]
mod delegated_work;
#[cfg(feature = "gateway")]
mod deliveries;
mod disk;
mod faults;
#[cfg(feature = "gateway")]
mod faulty_store;
#[cfg(feature = "gateway")]
mod gateway;
mod hub;
mod lost_agents;
#[cfg(feature = "gateway")]
mod outbound;
mod peers;
#[cfg(feature = "gateway")]
mod played_post;
#[cfg(feature = "gateway")]
mod receiver;
#[cfg(feature = "gateway")]
mod remote_agents;
#[cfg(feature = "gateway")]
mod rest;
mod scenarios;
mod shared;
mod simulation;
mod unread;
#[cfg(feature = "gateway")]
mod webhook;
mod world;
