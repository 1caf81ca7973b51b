package shop

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
)

// A Page is which part of a list a client wants. A list is paged by cursor: the cursor is the last entry that the
// client has, so that what is added meanwhile neither hides an entry nor shows one twice.
type Page struct {
	Limit  int    `query:"limit" minimum:"1" maximum:"100" default:"20" doc:"How many entries"`
	Cursor string `query:"cursor" maxLength:"500" doc:"next of the page before"`
}

// read reads the cursor, which may be missing.
func (p *Page) read(last any) error {
	if p.Cursor == "" {
		return nil
	}
	text, err := base64.RawURLEncoding.DecodeString(p.Cursor)
	if err == nil {
		err = json.Unmarshal(text, last)
	}
	if err != nil {
		return invalid("query.cursor", "the shop has given no such cursor")
	}
	return nil
}

// next returns the cursor of the page after last, and the link to it (RFC 8288).
func (p *Page) next(path string, last any) (cursor, link string) {
	cursor = base64.RawURLEncoding.EncodeToString([]byte(encode(last)))
	return cursor, fmt.Sprintf(`<%s%s?limit=%d&cursor=%s>; rel="next"`, base, path, p.Limit, url.QueryEscape(cursor))
}
