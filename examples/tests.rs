//! The tests of the examples, in one executable.

#[path = "car_purchase/test.rs"]
mod car_purchase;
mod in_memory;
#[path = "picture/test.rs"]
mod picture;
mod recorded;
#[path = "workflow/steps.rs"]
mod steps;
#[path = "work_order/test.rs"]
mod work_order;
#[path = "workflow/test.rs"]
mod workflow;
