//! backstitch-testkit
