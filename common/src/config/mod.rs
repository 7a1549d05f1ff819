//! Configuration: Kafka's property files, and the definitions of every key with type, default, range
//! and whether it may change at run time.
