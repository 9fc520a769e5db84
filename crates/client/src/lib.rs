//! Drive an Agent Client Protocol agent from an editor or a script.
