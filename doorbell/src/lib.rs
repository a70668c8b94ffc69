//! Doorbell registers, BlueFlame, doorbell records and the barriers between them.
