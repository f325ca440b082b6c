package strictjson

import (
	"unicode/utf16"
	"unicode/utf8"
)

// text appends the string whose opening quote was consumed to dst.
func (r *Reader) text(dst []byte) []byte {
	start := r.at
	ascii := true
	for r.at < len(r.src) {
		switch c := r.src[r.at]; {
		case c == '"':
			part := r.src[start:r.at]
			if !ascii && !utf8.Valid(part) {
				r.Fail("the text is not valid UTF-8: bytes that are no text go in base64")
				return dst
			}
			r.at++
			return append(dst, part...)
		case c == '\\':
			if !ascii && !utf8.Valid(r.src[start:r.at]) {
				r.Fail("the text is not valid UTF-8: bytes that are no text go in base64")
				return dst
			}
			dst = append(dst, r.src[start:r.at]...)
			if dst = r.escape(dst); r.err != nil {
				return dst
			}
			start = r.at
		case c < ' ':
			r.malformed("no control character (write it as an escape)")
			return dst
		default:
			ascii = ascii && c < utf8.RuneSelf
			r.at++
		}
	}
	r.malformed("the end of a string")
	return dst
}

// escape appends what the escape at hand stands for.
func (r *Reader) escape(dst []byte) []byte {
	r.at++
	if r.at >= len(r.src) {
		r.malformed("the rest of an escape")
		return dst
	}
	c := r.src[r.at]
	switch c {
	case '"', '\\', '/':
	case 'b':
		c = '\b'
	case 'f':
		c = '\f'
	case 'n':
		c = '\n'
	case 'r':
		c = '\r'
	case 't':
		c = '\t'
	case 'u':
		r.at++
		return r.unicode(dst)
	default:
		r.malformed(`one of "\/bfnrtu (after a backslash)`)
		return dst
	}
	r.at++
	return append(dst, c)
}

// unicode appends the rune of a \u escape, of two for a surrogate pair.
func (r *Reader) unicode(dst []byte) []byte {
	c := r.hex4()
	if utf16.IsSurrogate(c) {
		low := rune(utf8.RuneError)
		if r.at+1 < len(r.src) && r.src[r.at] == '\\' && r.src[r.at+1] == 'u' {
			r.at += 2
			low = r.hex4()
		}
		if c = utf16.DecodeRune(c, low); c == utf8.RuneError {
			r.Fail("the text has half of a surrogate pair, which is no character")
		}
	}
	return utf8.AppendRune(dst, c)
}

func (r *Reader) hex4() rune {
	var v rune
	for range 4 {
		if r.err != nil {
			return 0
		}
		if r.at >= len(r.src) {
			r.malformed("four hexadecimal digits")
			return 0
		}
		switch c := r.src[r.at]; {
		case c >= '0' && c <= '9':
			v = v<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			v = v<<4 | rune(c-'a'+10)
		case c >= 'A' && c <= 'F':
			v = v<<4 | rune(c-'A'+10)
		default:
			r.malformed("four hexadecimal digits")
			return 0
		}
		r.at++
	}
	return v
}
