// Package strictjson reads JSON that strangers send, and takes nothing for
// granted: a field that is not known, one that comes twice, a value of another
// type, a byte after the end, are each an error that says where and what was
// wanted. encoding/json lets the first three pass or does not say where, and
// decodes base64 at a fraction of the speed at which records arrive.
//
// Reader reads a document piece by piece, in place; Decode fills a struct by
// reflection and is for requests that are few. Both speak with one voice.
//
// A Reader has one owner at a time. It never reads past its source, nests no
// deeper than a fixed depth, and allocates nothing that the source does not
// reach. Deliberately absent: numbers with a fraction, which no request has, and
// writing.
package strictjson
