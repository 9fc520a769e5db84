//! Envelopes: what is asked, delegated and told, and by whom it is answered.
