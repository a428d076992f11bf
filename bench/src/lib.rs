//! Load generators: freon.
