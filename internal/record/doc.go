// Package record is Kafka's record batch v2 as a view over bytes: framing,
// validation, stamping, walking and building, and the codecs batches are
// compressed with. docs/format/record-batch.md describes every field.
//
//	 0        8       12      16      17      21       23       27       35       43
//	 +--------+-------+-------+-------+-------+--------+--------+--------+--------+
//	 | base   | batch | leader| magic | CRC-  | attri- | last   | base   | max    |
//	 | offset | length| epoch | = 2   | 32C   | butes  | offset | time-  | time-  |
//	 |        |       |       |       |       |        | delta  | stamp  | stamp  |
//	 +--------+-------+-------+-------+-------+--------+--------+--------+--------+
//	                                          '- what the checksum covers ... ->
//	43        51       53       57      61
//	 +--------+--------+--------+-------+------------------------------
//	 | pro-   | pro-   | base   | record| records, one by one, or all
//	 | ducer  | ducer  | se-    | count | of them compressed as one
//	 | id     | epoch  | quence |       | stream of the batch's codec
//	 +--------+--------+--------+-------+------------------------------
//
// The checksum starts after the leader epoch, so the broker stamps the base
// offset and the leader epoch of a stored batch in place, and a batch stays as
// the producer compressed it from socket to disk.
//
// Assumptions: the bytes under a Batch do not change while it is in use, except
// by its own Stamp methods. Nothing else is assumed: every byte may come from a
// stranger. No length is trusted before it was compared with what is there, no
// buffer is sized by a length that the data cannot reach, and decompression is
// streamed and bounded.
//
// Everything here may be called from any goroutine, but a Batch that is being
// stamped, a Builder, a Compressor and a Decompressor have one owner at a time.
//
// Deliberately absent: message formats v0 and v1 (no client of Kafka 4 sends
// them), offsets assignment (commitlog), and what the end of a transaction, which
// a control batch is, means to others (producerstate). The one package-level state is a pool of
// Decompressors, because their tables are dear and a broker validates on many
// connections; who wants none of it owns a Decompressor.
package record
