//! Work orders: stateless steps, and the workflow that runs them.
