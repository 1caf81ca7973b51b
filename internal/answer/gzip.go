package answer

import (
	"net/http"
	"strconv"
	"strings"
)

// AcceptsGzip reads Accept-Encoding (RFC 9110, section 12.5.3). Without the header it reports false: a client always
// accepts a body without a coding.
func AcceptsGzip(lines []string) bool {
	accepts := false
	for _, line := range lines {
		for item := range strings.SplitSeq(line, ",") {
			coding, params, _ := strings.Cut(item, ";")
			coding = strings.TrimSpace(coding)
			refused := false
			if name, weight, ok := strings.Cut(params, "="); ok && strings.EqualFold(strings.TrimSpace(name), "q") {
				q, err := strconv.ParseFloat(strings.TrimSpace(weight), 64)
				refused = err != nil || !(q > 0)
			}
			switch {
			case strings.EqualFold(coding, "gzip"), strings.EqualFold(coding, "x-gzip"):
				return !refused
			case coding == "*":
				accepts = !refused
			}
		}
	}
	return accepts
}

// Gunzip decodes a body. ok is false if the body can't be decoded, or has more than limit bytes then.
func Gunzip(body []byte, limit int64) (plain []byte, ok bool) {
	plain, err := gzipCodec{}.Decode(body, limit)
	return plain, err == nil
}

// Decoded removes from a header what describes the encoded bytes of a body that is sent decoded.
func Decoded(h http.Header) {
	for _, name := range []string{"Content-Encoding", "Content-Digest", "Repr-Digest", "Digest", "Content-Md5"} {
		delete(h, name)
	}
	if tag := h.Get("Etag"); strings.HasPrefix(tag, `"`) {
		h.Set("Etag", "W/"+tag)
	}
}
