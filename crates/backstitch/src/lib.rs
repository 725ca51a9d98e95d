//! backstitch
