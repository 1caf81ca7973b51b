package main

import (
	"net"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/semelgin"
)

var onGin = service{
	scope: semelgin.Scope(func(c *gin.Context) (string, error) { return c.GetString("account"), nil }),
	serve: func(l net.Listener, guard *semel.Guard, ledger *ledger) error {
		gin.SetMode(gin.ReleaseMode)
		r := gin.New()
		r.Use(gin.Recovery(), func(c *gin.Context) { c.Set("account", c.GetHeader("X-Account")) })
		r.POST("/payments", semelgin.Middleware(guard), func(c *gin.Context) {
			var p payment
			if err := c.ShouldBindJSON(&p); err != nil {
				c.AbortWithStatusJSON(http.StatusBadRequest, gin.H{"error": "not JSON"})
				return
			}
			ch, err := ledger.charge(p)
			if err != nil {
				c.AbortWithStatusJSON(http.StatusUnprocessableEntity, gin.H{"error": err.Error()})
				return
			}
			c.Header("Location", "/payments/"+ch.ID)
			c.JSON(http.StatusCreated, ch)
		})
		r.GET("/operations", semelgin.Handler(guard.Operations()))
		return serveHTTP(l, r)
	},
}
