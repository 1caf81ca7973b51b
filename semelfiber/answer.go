package semelfiber

import (
	"net/http"
	"strings"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"
)

// An answer is one of net/http's, held in memory until fiber can send it.
type answer struct {
	header http.Header
	status int
	body   []byte
}

// newAnswer returns an answer with the headers that fiber's has so far, but for its type, which has a default, and for
// what fasthttp makes when it sends it.
func newAnswer(resp *fasthttp.Response) *answer {
	a := &answer{header: http.Header{}}
	for name, value := range resp.Header.All() {
		if name := http.CanonicalHeaderKey(string(name)); name != "Content-Type" && !framing(name) {
			a.header[name] = append(a.header[name], string(value))
		}
	}
	return a
}

func framing(name string) bool {
	return name == "Content-Length" || name == "Transfer-Encoding" || name == "Trailer"
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	if a.status == 0 && status >= 200 {
		a.status = status
	}
}

func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	a.body = append(a.body, p...)
	return len(p), nil
}

// addTo gives fiber's answer the headers that the guard has set before it lets a request pass.
func (a *answer) addTo(resp *fasthttp.Response) {
	for name, values := range a.header {
		if !framing(name) {
			resp.Header.Del(name)
			for _, v := range values {
				resp.Header.Add(name, v)
			}
		}
	}
}

// send makes fiber's answer this one.
func (a *answer) send(resp *fasthttp.Response) {
	var names []string // copies: fasthttp moves the others when one is deleted
	for name := range resp.Header.All() {
		names = append(names, string(name))
	}
	for _, name := range names {
		resp.Header.Del(name)
	}
	a.addTo(resp)
	resp.SetStatusCode(a.status)
	resp.SetBodyRaw(a.body)
}

// contentType returns the type that fasthttp would send.
func contentType(resp *fasthttp.Response) []string {
	t := string(resp.Header.ContentType())
	empty := !resp.IsBodyStream() && len(resp.Body()) == 0
	if t == "" || empty && strings.EqualFold(t, fiber.MIMETextPlainCharsetUTF8) {
		return nil // the default is sent only of what isn't empty
	}
	return []string{t}
}
