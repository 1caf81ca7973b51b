package semelfiber

import (
	"bytes"
	"context"
	"io"
	"maps"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"

	"github.com/gofiber/fiber/v3"
)

// request makes the request that the guard sees. It shares no memory with fiber's but for the body, which the guard
// copies: it may be asked after fiber has used that memory again, when an outcome is settled late.
func request(c fiber.Ctx) (*http.Request, error) {
	ctx := c.RequestCtx()
	target := string(ctx.Request.Header.RequestURI())
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return nil, fiber.NewError(http.StatusBadRequest, "the request's target is malformed")
	}
	r := (&http.Request{
		Method: string(ctx.Method()), URL: u, RequestURI: target, Host: string(ctx.Host()),
		Proto: "HTTP/1.0", ProtoMajor: 1, RemoteAddr: ctx.RemoteAddr().String(), TLS: ctx.TLSConnectionState(),
		Header: http.Header{},
	}).WithContext(copied{context.WithValue(c.Context(), contextKey{}, c)})
	if ctx.Request.Header.IsHTTP11() {
		r.Proto, r.ProtoMinor = "HTTP/1.1", 1
	}
	for name, value := range ctx.Request.Header.All() {
		switch name := http.CanonicalHeaderKey(string(name)); name {
		case "Host", "Transfer-Encoding":
		default:
			r.Header[name] = append(r.Header[name], string(value))
		}
	}
	if route := c.FullPath(); route != "" {
		r.Pattern = r.Method + " " + strings.Clone(route)
	}
	return r, setBody(r, c)
}

func setBody(r *http.Request, c fiber.Ctx) error {
	sent := c.Request()
	var body []byte
	switch boundary := string(sent.Header.MultipartFormBoundary()); {
	case boundary != "" && preparsed(c):
		form, err := sent.MultipartForm()
		if err == nil {
			body, err = marshal(form, boundary)
		}
		if err != nil {
			return fiber.NewError(http.StatusBadRequest, "the multipart body can't be read")
		}
	case sent.IsBodyStream():
		r.Body, r.ContentLength = &streamed{Reader: c.RequestCtx().RequestBodyStream()}, int64(max(sent.Header.ContentLength(), -1))
		return nil
	default:
		body = sent.Body()
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return nil
}

// streamed is a body that is still on the connection.
type streamed struct {
	io.Reader
	ended bool
}

func (s *streamed) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	s.ended = s.ended || err == io.EOF
	return n, err
}

func (s *streamed) Close() error { return nil } // it is fiber's

// preparsed reports whether fasthttp has parsed a multipart body, and thrown it away.
func preparsed(c fiber.Ctx) bool {
	h := &c.Request().Header
	return !c.App().Config().DisablePreParseMultipartForm && h.ContentLength() > 0 && len(h.ContentEncoding()) == 0
}

// marshal writes a parsed form in one order: that in which it was sent is not known.
func marshal(form *multipart.Form, boundary string) ([]byte, error) {
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	if err := w.SetBoundary(boundary); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(form.Value)) {
		for _, value := range form.Value[name] {
			if err := w.WriteField(name, value); err != nil {
				return nil, err
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(form.File)) {
		for _, file := range form.File[name] {
			if err := copyPart(w, file.Header, file.Open); err != nil {
				return nil, err
			}
		}
	}
	err := w.Close()
	return body.Bytes(), err
}

func copyPart(w *multipart.Writer, header textproto.MIMEHeader, open func() (multipart.File, error)) error {
	part, err := w.CreatePart(header)
	if err != nil {
		return err
	}
	file, err := open()
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(part, file)
	return err
}

type contextKey struct{}

// copied copies the strings that a context holds: fiber's handlers put such there whose memory is used again.
type copied struct{ context.Context }

func (c copied) Value(key any) any {
	v := c.Context.Value(key)
	if s, ok := v.(string); ok {
		return strings.Clone(s)
	}
	return v
}
