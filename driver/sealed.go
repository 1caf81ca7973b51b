package driver

// SealedName is what the Operation and the Correlation of a [Record], and the Operation of an [AuditEntry], begin with
// where they are encrypted ([Options].Encryption). No method and path begins so, nor can a client's correlation id.
const SealedName = "sealed: " // and an envelope, as text
