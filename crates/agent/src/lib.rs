//! Write an Agent Client Protocol agent.
