// Package sqltext reads statements of PostgreSQL, as far as it takes to tell whether they end a transaction.
package sqltext

import "strings"

// EndsTransaction reports whether one of the statements in sql would begin or end a transaction. It is there to catch
// mistakes, not attacks.
func EndsTransaction(sql string) bool {
	for sql != "" {
		i := statementEnd(sql)
		if w := words(sql[:i], 3); len(w) > 0 {
			switch w[0] {
			case "BEGIN", "START", "COMMIT", "END", "ABORT":
				return true
			case "PREPARE":
				if len(w) > 1 && w[1] == "TRANSACTION" {
					return true
				}
			case "ROLLBACK":
				if !toSavepoint(w[1:]) {
					return true
				}
			case "CREATE":
				if strings.Contains(strings.ToUpper(sql), "ATOMIC") {
					return false // a function whose body is not quoted: the END is its own
				}
			}
		}
		sql = sql[min(i+1, len(sql)):]
	}
	return false
}

// toSavepoint reports whether what follows the word ROLLBACK leaves the transaction open.
func toSavepoint(w []string) bool {
	if len(w) > 0 && (w[0] == "WORK" || w[0] == "TRANSACTION") {
		w = w[1:]
	}
	return len(w) > 0 && w[0] == "TO"
}

// statementEnd returns the index of the semicolon that ends the first statement in sql, or its length.
func statementEnd(sql string) int {
	if strings.IndexByte(sql, ';') < 0 {
		return len(sql)
	}
	for i := 0; i < len(sql); {
		if sql[i] == ';' {
			return i
		}
		i += max(1, skipped(sql, i))
	}
	return len(sql)
}

// words returns the first words of a statement, in upper case.
func words(sql string, most int) (w []string) {
	for i := 0; i < len(sql) && len(w) < most; {
		if n := blank(sql, i); n > 0 {
			i += n
			continue
		}
		start := i
		for i < len(sql) && inWord(sql[i]) {
			i++
		}
		if i == start {
			break
		}
		w = append(w, strings.ToUpper(sql[start:i]))
	}
	return w
}

func inWord(c byte) bool {
	return c|0x20 >= 'a' && c|0x20 <= 'z' || c == '_' || c >= 0x80 || c >= '0' && c <= '9'
}

// blank returns the length of the white space or comment at i.
func blank(sql string, i int) int {
	switch rest := sql[i:]; {
	case strings.IndexByte(" \t\n\f\r\v", sql[i]) >= 0:
		return 1
	case strings.HasPrefix(rest, "--"):
		return through(rest, "\n", 2)
	case strings.HasPrefix(rest, "/*"):
		return comment(rest)
	}
	return 0
}

// comment returns the length of the comment at the beginning of sql. Comments nest.
func comment(sql string) int {
	depth := 0
	for i := 0; i < len(sql); {
		switch rest := sql[i:]; {
		case strings.HasPrefix(rest, "/*"):
			depth++
			i += 2
		case strings.HasPrefix(rest, "*/"):
			if depth--; depth == 0 {
				return i + 2
			}
			i += 2
		default:
			i++
		}
	}
	return len(sql)
}

// skipped returns the length of what begins at i and may hold a semicolon that ends nothing: a comment, a string, a
// quoted name.
func skipped(sql string, i int) int {
	before := i > 0 && inWord(sql[i-1])
	switch rest := sql[i:]; {
	case sql[i] == '\'' && before && sql[i-1]|0x20 == 'e' && (i < 2 || !inWord(sql[i-2])):
		return escaped(rest)
	case sql[i] == '\'' || sql[i] == '"':
		return through(rest, rest[:1], 1) // one doubled within begins the next
	case sql[i] == '$' && !before:
		n := 1
		for n < len(rest) && inWord(rest[n]) {
			n++
		}
		if n == len(rest) || rest[n] != '$' || n > 1 && rest[1] >= '0' && rest[1] <= '9' {
			return 1
		}
		return through(rest, rest[:n+1], n+1)
	}
	return blank(sql, i)
}

// escaped returns the length of a string in which a backslash escapes.
func escaped(sql string) int {
	for i := 1; i < len(sql); i++ {
		switch sql[i] {
		case '\\':
			i++
		case '\'':
			return i + 1
		}
	}
	return len(sql)
}

// through returns the length of sql up to the end of the first end at or after from.
func through(sql, end string, from int) int {
	if i := strings.Index(sql[from:], end); i >= 0 {
		return from + i + len(end)
	}
	return len(sql)
}
