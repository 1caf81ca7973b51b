package driver

// SealedName is the beginning of the encrypted ([Options].Encryption) Operation and Correlation of a [Record], and of
// the encrypted Operation of an [AuditEntry]. No method and path begins with it, nor can a client's correlation id.
const SealedName = "sealed: " // an envelope follows, as text
