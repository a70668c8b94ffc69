    push rbp
    mov rbp,rsp
    push r15
    push r14
    push r13
    push r12
    push rbx
    and rsp,0xffffffffffffffc0
    sub rsp,0x100
    mov QWORD PTR [rsp+0x50],rdx
    mov r10,QWORD PTR [rsi+0x40]
    test r10,r10
    je 5
    mov eax,DWORD PTR [rsi+0x50]
    add eax,DWORD PTR [rsi+0x54]
    mov edx,DWORD PTR [rsi+0x4c]
    mov DWORD PTR [rsi+0x50],eax
    mov ecx,edx
    sub ecx,eax
    jbe 6
    lea rdx,[rcx-0x1]
    cmp rdx,0x40
    mov r8d,0x40
    cmovb r8,rdx
    cmp ecx,0x1
    mov r11d,0x1
    cmovne r11,r8
    mov DWORD PTR [rsi+0x54],r11d
    mov ecx,DWORD PTR [rsi+0x48]
    mov DWORD PTR [rsp+0x24],ecx
    mov r12d,eax
    mov rax,QWORD PTR [rsi+0x38]
    mov rcx,rax
    shr rcx,0x3c
    mov rdx,rax
    shr rdx,0x38
    mov QWORD PTR [rsp+0x58],rdx
    test rcx,rcx
    mov QWORD PTR [rsp+0x78],rdi
    mov QWORD PTR [rsp+0x70],r10
    mov QWORD PTR [rsp+0x60],rsi
    mov QWORD PTR [rsp+0x68],r11
    jne 7
    movabs rdi,0xffffffff00000000
    movabs r8,0xffff00000000
    movabs r9,0xfff0000ffffff00
    and r9,rax
    mov rcx,QWORD PTR [rsi+0x30]
    mov QWORD PTR [rsp+0xb0],rcx
    movups xmm0,XMMWORD PTR [rsi]
    movups xmm1,XMMWORD PTR [rsi+0x10]
    movups xmm2,XMMWORD PTR [rsi+0x20]
    movaps XMMWORD PTR [rsp+0xa0],xmm2
    movaps XMMWORD PTR [rsp+0x90],xmm1
    movaps XMMWORD PTR [rsp+0x80],xmm0
    mov QWORD PTR [rsp+0xb8],rax
    lea rax,[rsp+0x80]
    mov QWORD PTR [rsp+0x40],rax
    lea rax,[rsp+0x40]
    mov rax,QWORD PTR [rsp+0x40]
    mov ebx,DWORD PTR [rax+0x28]
    mov r15,r10
    mov rcx,r11
    jmp 1
0:
    mov rdx,QWORD PTR [rsp+0x38]
    add r12,rdx
    mov rcx,QWORD PTR [rsp+0x28]
    sub rcx,rdx
    je 13
1:
    mov r11d,r12d
    and r11d,0x7
    mov edx,0x8
    sub rdx,r11
    cmp rdx,rcx
    mov QWORD PTR [rsp+0x28],rcx
    cmovae rdx,rcx
    mov QWORD PTR [rsp+0x38],rdx
    shl edx,0x6
    mov rsi,r12
    and rsi,0xfffffffffffffff8
    mov ecx,0x1
    cmove esi,ecx
    mov r10,QWORD PTR [rsp+0x50]
    mov r13,QWORD PTR [r10+0x8]
    mov ecx,DWORD PTR [r10+0x18]
    mov r14d,0xffffffff
    shl r14d,cl
    add esi,DWORD PTR [rsp+0x24]
    not r14d
    and r14d,esi
    inc r14d
    imul r14,QWORD PTR [r10+0x10]
    lea r10,[rdx-0x40]
    test r10b,0x40
    mov QWORD PTR [rsp+0x48],r13
    jne 2
    lea rsi,[r14+r13*1]
    add rsi,0xffffffffffffffc0
    lea rcx,[r15+0x40]
    mov QWORD PTR [rsp+0x30],r12
    mov r12,QWORD PTR [rsi+r11*8]
    inc r11
    movaps xmm0,XMMWORD PTR [rax]
    movaps xmm1,XMMWORD PTR [rax+0x10]
    movaps xmm2,XMMWORD PTR [rax+0x20]
    movaps xmm3,XMMWORD PTR [rax+0x30]
    movaps XMMWORD PTR [r15+0x20],xmm2
    movaps XMMWORD PTR [r15+0x30],xmm3
    movaps XMMWORD PTR [r15],xmm0
    movaps XMMWORD PTR [r15+0x10],xmm1
    mov rsi,r12
    and rsi,rdi
    or rsi,rbx
    mov QWORD PTR [r15+0x28],rsi
    mov esi,r12d
    shr esi,0x10
    movzx esi,sil
    shl r12,0x20
    and r12,r8
    or r12,rsi
    or r12,r9
    mov QWORD PTR [r15+0x38],r12
    mov r12,QWORD PTR [rsp+0x30]
    add r15,rdx
    test r10,r10
    jne 3
    jmp 0
2:
    mov rcx,r15
    add r15,rdx
    test r10,r10
    je 0
3:
    lea rdx,[r14+r11*8]
    mov rsi,QWORD PTR [rsp+0x48]
    add rdx,rsi
    add rdx,0xffffffffffffffc8
    xor esi,esi
4:
    mov r10,QWORD PTR [rdx+rsi*1-0x8]
    movaps xmm0,XMMWORD PTR [rax]
    movaps xmm1,XMMWORD PTR [rax+0x10]
    movaps xmm2,XMMWORD PTR [rax+0x20]
    movaps xmm3,XMMWORD PTR [rax+0x30]
    movaps XMMWORD PTR [rcx+rsi*8+0x20],xmm2
    movaps XMMWORD PTR [rcx+rsi*8+0x30],xmm3
    movaps XMMWORD PTR [rcx+rsi*8],xmm0
    movaps XMMWORD PTR [rcx+rsi*8+0x10],xmm1
    mov r11,r10
    and r11,rdi
    or r11,rbx
    mov QWORD PTR [rcx+rsi*8+0x28],r11
    mov r11d,r10d
    shr r11d,0x10
    movzx r11d,r11b
    shl r10,0x20
    and r10,r8
    or r10,r11
    or r10,r9
    mov QWORD PTR [rcx+rsi*8+0x38],r10
    mov r10,QWORD PTR [rdx+rsi*1]
    movaps xmm0,XMMWORD PTR [rax]
    movaps xmm1,XMMWORD PTR [rax+0x10]
    movaps xmm2,XMMWORD PTR [rax+0x20]
    movaps xmm3,XMMWORD PTR [rax+0x30]
    movaps XMMWORD PTR [rcx+rsi*8+0x60],xmm2
    movaps XMMWORD PTR [rcx+rsi*8+0x70],xmm3
    movaps XMMWORD PTR [rcx+rsi*8+0x40],xmm0
    movaps XMMWORD PTR [rcx+rsi*8+0x50],xmm1
    mov r11,r10
    and r11,rdi
    or r11,rbx
    mov QWORD PTR [rcx+rsi*8+0x68],r11
    mov r11d,r10d
    shr r11d,0x10
    movzx r11d,r11b
    shl r10,0x20
    and r10,r8
    or r10,r11
    or r10,r9
    mov QWORD PTR [rcx+rsi*8+0x78],r10
    lea r10,[rcx+rsi*8]
    add r10,0x80
    add rsi,0x10
    cmp r10,r15
    jne 4
    jmp 0
5:
    mov QWORD PTR [rdi+0x8],0x0
    jmp 33
6:
    mov DWORD PTR [rdi+0x4],edx
    mov eax,0x1
    jmp 34
7:
    movabs rbx,0xffffffff00000000
    movzx r13d,WORD PTR [rsi+0x58]
    movzx edi,BYTE PTR [rsi+0x5b]
    movzx ecx,BYTE PTR [rsi+0x5a]
    mov rdx,QWORD PTR [rsi+0x30]
    mov QWORD PTR [rsp+0xb0],rdx
    movups xmm0,XMMWORD PTR [rsi]
    movups xmm1,XMMWORD PTR [rsi+0x10]
    movups xmm2,XMMWORD PTR [rsi+0x20]
    movaps XMMWORD PTR [rsp+0xa0],xmm2
    movaps XMMWORD PTR [rsp+0x90],xmm1
    movaps XMMWORD PTR [rsp+0x80],xmm0
    mov QWORD PTR [rsp+0xb8],rax
    lea rax,[rsp+0x80]
    mov QWORD PTR [rsp+0x40],rax
    lea rax,[rsp+0x40]
    mov r14,QWORD PTR [rsp+0x40]
    mov r15d,DWORD PTR [r14+0x28]
    test cl,cl
    je 14
    cmp cl,0x3
    sete al
    test al,dil
    je 22
    mov rdi,r10
    mov r8,r11
    jmp 9
8:
    mov r12,QWORD PTR [rsp+0x30]
    add r12,r9
    sub r8,r9
    je 30
9:
    mov r11d,r12d
    and r11d,0x7
    mov r9d,0x8
    sub r9,r11
    cmp r9,r8
    cmovae r9,r8
    mov edx,r9d
    shl edx,0x6
    mov QWORD PTR [rsp+0x30],r12
    mov r10,r12
    and r10,0xfffffffffffffff8
    mov eax,0x1
    cmove r10d,eax
    mov r12,QWORD PTR [rsp+0x50]
    mov rsi,QWORD PTR [r12+0x8]
    mov ecx,DWORD PTR [r12+0x18]
    mov eax,0xffffffff
    shl eax,cl
    add r10d,DWORD PTR [rsp+0x24]
    not eax
    and eax,r10d
    inc eax
    imul rax,QWORD PTR [r12+0x10]
    lea r10,[rdx-0x40]
    test r10b,0x40
    jne 10
    lea rcx,[rsi+rax*1]
    add rcx,0xffffffffffffffc0
    lea r12,[rdi+0x40]
    mov rcx,QWORD PTR [rcx+r11*8]
    inc r11
    movaps xmm0,XMMWORD PTR [r14]
    movaps xmm1,XMMWORD PTR [r14+0x10]
    movaps xmm2,XMMWORD PTR [r14+0x20]
    movaps xmm3,XMMWORD PTR [r14+0x30]
    movaps XMMWORD PTR [rdi+0x20],xmm2
    movaps XMMWORD PTR [rdi+0x30],xmm3
    movaps XMMWORD PTR [rdi+0x10],xmm1
    movaps XMMWORD PTR [rdi],xmm0
    mov r13,rcx
    and r13,rbx
    or r13,r15
    mov QWORD PTR [rdi+0x28],r13
    mov r13d,ecx
    shr r13d,0x10
    mov WORD PTR [rdi+0x3c],r13w
    mov WORD PTR [rdi+0x14],cx
    add rdi,rdx
    test r10,r10
    jne 11
    jmp 8
10:
    mov r12,rdi
    add rdi,rdx
    test r10,r10
    je 8
11:
    lea rax,[rax+r11*8]
    add rax,rsi
    add rax,0xffffffffffffffc8
    xor edx,edx
12:
    mov rcx,QWORD PTR [rax+rdx*1-0x8]
    movaps xmm0,XMMWORD PTR [r14]
    movaps xmm1,XMMWORD PTR [r14+0x10]
    movaps xmm2,XMMWORD PTR [r14+0x20]
    movaps xmm3,XMMWORD PTR [r14+0x30]
    movaps XMMWORD PTR [r12+rdx*8+0x20],xmm2
    movaps XMMWORD PTR [r12+rdx*8+0x30],xmm3
    movaps XMMWORD PTR [r12+rdx*8+0x10],xmm1
    movaps XMMWORD PTR [r12+rdx*8],xmm0
    mov rsi,rcx
    and rsi,rbx
    or rsi,r15
    mov QWORD PTR [r12+rdx*8+0x28],rsi
    mov esi,ecx
    shr esi,0x10
    mov WORD PTR [r12+rdx*8+0x3c],si
    mov WORD PTR [r12+rdx*8+0x14],cx
    mov rcx,QWORD PTR [rax+rdx*1]
    movaps xmm0,XMMWORD PTR [r14]
    movaps xmm1,XMMWORD PTR [r14+0x10]
    movaps xmm2,XMMWORD PTR [r14+0x20]
    movaps xmm3,XMMWORD PTR [r14+0x30]
    movaps XMMWORD PTR [r12+rdx*8+0x60],xmm2
    movaps XMMWORD PTR [r12+rdx*8+0x70],xmm3
    movaps XMMWORD PTR [r12+rdx*8+0x50],xmm1
    movaps XMMWORD PTR [r12+rdx*8+0x40],xmm0
    mov rsi,rcx
    and rsi,rbx
    or rsi,r15
    mov QWORD PTR [r12+rdx*8+0x68],rsi
    mov r13d,ecx
    shr r13d,0x10
    mov WORD PTR [r12+rdx*8+0x7c],r13w
    mov WORD PTR [r12+rdx*8+0x54],cx
    lea rsi,[r12+rdx*8]
    add rsi,0x80
    add rdx,0x10
    cmp rsi,rdi
    jne 12
    jmp 8
13:
    mov rax,QWORD PTR [rsp+0x60]
    jmp 32
14:
    mov BYTE PTR [rsp+0x38],dil
    mov rax,r10
    mov r9,r11
    jmp 16
15:
    sub r9,r8
    mov r12,QWORD PTR [rsp+0x30]
    add r12,r8
    mov r13d,ecx
    test r9,r9
    je 31
16:
    mov r10,r12
    and r12d,0x7
    mov r8d,0x8
    sub r8,r12
    cmp r8,r9
    mov QWORD PTR [rsp+0x28],r9
    cmovae r8,r9
    mov r11d,r8d
    shl r11d,0x6
    mov QWORD PTR [rsp+0x30],r10
    and r10,0xfffffffffffffff8
    mov ecx,0x1
    cmove r10d,ecx
    mov rdi,rax
    mov rdx,QWORD PTR [rsp+0x50]
    mov r9,QWORD PTR [rdx+0x8]
    mov ecx,DWORD PTR [rdx+0x18]
    mov esi,0xffffffff
    shl esi,cl
    add r10d,DWORD PTR [rsp+0x24]
    not esi
    and esi,r10d
    add rax,r11
    inc esi
    imul rsi,QWORD PTR [rdx+0x10]
    cmp BYTE PTR [rsp+0x38],0x0
    je 18
    lea rcx,[rsi+r12*8]
    lea rdx,[r9+rcx*1]
    add rdx,0xffffffffffffffc0
    xor esi,esi
    mov r9,QWORD PTR [rsp+0x28]
17:
    mov r10,QWORD PTR [rdx+rsi*1]
    movaps xmm0,XMMWORD PTR [r14]
    movaps xmm1,XMMWORD PTR [r14+0x10]
    movaps xmm2,XMMWORD PTR [r14+0x20]
    movaps xmm3,XMMWORD PTR [r14+0x30]
    movaps XMMWORD PTR [rdi+rsi*8+0x20],xmm2
    movaps XMMWORD PTR [rdi+rsi*8+0x30],xmm3
    movaps XMMWORD PTR [rdi+rsi*8],xmm0
    movaps XMMWORD PTR [rdi+rsi*8+0x10],xmm1
    mov rcx,r10
    and rcx,rbx
    or rcx,r15
    mov QWORD PTR [rdi+rsi*8+0x28],rcx
    mov rcx,r10
    shr rcx,0x20
    bswap ecx
    shr ecx,0x10
    and ecx,0x7fff
    add ecx,r13d
    mov r11d,r13d
    rol r11w,0x8
    mov WORD PTR [rdi+rsi*8+0x3c],r11w
    mov DWORD PTR [rdi+rsi*8+0xc],r10d
    lea r10,[rdi+rsi*8]
    add r10,0x40
    add rsi,0x8
    mov r13d,ecx
    cmp r10,rax
    jne 17
    jmp 15
18:
    add r11,0xffffffffffffffc0
    test r11b,0x40
    jne 19
    mov rdx,r9
    lea rcx,[r9+rsi*1]
    add rcx,0xffffffffffffffc0
    mov r10,QWORD PTR [rcx+r12*8]
    movaps xmm0,XMMWORD PTR [r14]
    movaps xmm1,XMMWORD PTR [r14+0x10]
    movaps xmm2,XMMWORD PTR [r14+0x20]
    movaps xmm3,XMMWORD PTR [r14+0x30]
    movaps XMMWORD PTR [rdi+0x20],xmm2
    movaps XMMWORD PTR [rdi+0x30],xmm3
    movaps XMMWORD PTR [rdi],xmm0
    movaps XMMWORD PTR [rdi+0x10],xmm1
    mov rcx,r10
    and rcx,rbx
    or rcx,r15
    mov QWORD PTR [rdi+0x28],rcx
    lea ecx,[r13+0x1]
    rol r13w,0x8
    mov WORD PTR [rdi+0x3c],r13w
    mov DWORD PTR [rdi+0xc],r10d
    add rdi,0x40
    inc r12
    mov r13d,ecx
    mov r9,QWORD PTR [rsp+0x28]
    test r11,r11
    jne 20
    jmp 15
19:
    mov rdx,r9
    mov r9,QWORD PTR [rsp+0x28]
    test r11,r11
    je 15
20:
    lea rcx,[rsi+r12*8]
    add rdx,rcx
    add rdx,0xffffffffffffffc8
    xor esi,esi
    mov ecx,r13d
21:
    mov r10,QWORD PTR [rdx+rsi*1-0x8]
    movaps xmm0,XMMWORD PTR [r14]
    movaps xmm1,XMMWORD PTR [r14+0x10]
    movaps xmm2,XMMWORD PTR [r14+0x20]
    movaps xmm3,XMMWORD PTR [r14+0x30]
    movaps XMMWORD PTR [rdi+rsi*8+0x20],xmm2
    movaps XMMWORD PTR [rdi+rsi*8+0x30],xmm3
    movaps XMMWORD PTR [rdi+rsi*8],xmm0
    movaps XMMWORD PTR [rdi+rsi*8+0x10],xmm1
    mov r11,r10
    and r11,rbx
    or r11,r15
    mov QWORD PTR [rdi+rsi*8+0x28],r11
    mov r11d,ecx
    rol r11w,0x8
    mov WORD PTR [rdi+rsi*8+0x3c],r11w
    mov DWORD PTR [rdi+rsi*8+0xc],r10d
    mov r10,QWORD PTR [rdx+rsi*1]
    movaps xmm0,XMMWORD PTR [r14]
    movaps xmm1,XMMWORD PTR [r14+0x10]
    movaps xmm2,XMMWORD PTR [r14+0x20]
    movaps xmm3,XMMWORD PTR [r14+0x30]
    movaps XMMWORD PTR [rdi+rsi*8+0x60],xmm2
    movaps XMMWORD PTR [rdi+rsi*8+0x70],xmm3
    movaps XMMWORD PTR [rdi+rsi*8+0x40],xmm0
    movaps XMMWORD PTR [rdi+rsi*8+0x50],xmm1
    mov r11,r10
    and r11,rbx
    or r11,r15
    mov QWORD PTR [rdi+rsi*8+0x68],r11
    lea r11d,[rcx+0x1]
    rol r11w,0x8
    mov WORD PTR [rdi+rsi*8+0x7c],r11w
    add ecx,0x2
    mov DWORD PTR [rdi+rsi*8+0x4c],r10d
    lea r10,[rdi+rsi*8]
    add r10,0x80
    add rsi,0x10
    cmp r10,rax
    jne 21
    jmp 15
22:
    mov BYTE PTR [rsp+0x38],dil
    mov r9,r10
    jmp 24
23:
    mov r11,QWORD PTR [rsp+0x28]
    sub r11,rdi
    mov r12,QWORD PTR [rsp+0x30]
    add r12,rdi
    mov r13d,ecx
    test r11,r11
    je 31
24:
    mov rdx,r12
    and r12d,0x7
    mov edi,0x8
    sub rdi,r12
    cmp rdi,r11
    mov QWORD PTR [rsp+0x28],r11
    cmovae rdi,r11
    mov r11d,edi
    shl r11d,0x6
    mov QWORD PTR [rsp+0x30],rdx
    and rdx,0xfffffffffffffff8
    mov eax,0x1
    cmove edx,eax
    mov rax,r9
    mov r10,QWORD PTR [rsp+0x50]
    mov r8,QWORD PTR [r10+0x8]
    mov ecx,DWORD PTR [r10+0x18]
    mov esi,0xffffffff
    shl esi,cl
    add edx,DWORD PTR [rsp+0x24]
    not esi
    and esi,edx
    add r9,r11
    inc esi
    imul rsi,QWORD PTR [r10+0x10]
    cmp BYTE PTR [rsp+0x38],0x0
    je 26
    lea rcx,[rsi+r12*8]
    lea rdx,[r8+rcx*1]
    add rdx,0xffffffffffffffc0
    xor esi,esi
25:
    mov r10,QWORD PTR [rdx+rsi*1]
    movaps xmm0,XMMWORD PTR [r14]
    movaps xmm1,XMMWORD PTR [r14+0x10]
    movaps xmm2,XMMWORD PTR [r14+0x20]
    movaps xmm3,XMMWORD PTR [r14+0x30]
    movaps XMMWORD PTR [rax+rsi*8+0x20],xmm2
    movaps XMMWORD PTR [rax+rsi*8+0x30],xmm3
    movaps XMMWORD PTR [rax+rsi*8+0x10],xmm1
    movaps XMMWORD PTR [rax+rsi*8],xmm0
    mov rcx,r10
    and rcx,rbx
    or rcx,r15
    mov QWORD PTR [rax+rsi*8+0x28],rcx
    mov rcx,r10
    shr rcx,0x20
    bswap ecx
    shr ecx,0x10
    and ecx,0x7fff
    add ecx,r13d
    mov r11d,r13d
    rol r11w,0x8
    mov WORD PTR [rax+rsi*8+0x3c],r11w
    mov WORD PTR [rax+rsi*8+0x14],r10w
    lea r10,[rax+rsi*8]
    add r10,0x40
    add rsi,0x8
    mov r13d,ecx
    cmp r10,r9
    jne 25
    jmp 23
26:
    mov QWORD PTR [rsp+0x48],r8
    add r11,0xffffffffffffffc0
    test r11b,0x40
    jne 27
    mov rcx,QWORD PTR [rsp+0x48]
    add rcx,rsi
    add rcx,0xffffffffffffffc0
    mov rdx,QWORD PTR [rcx+r12*8]
    movaps xmm0,XMMWORD PTR [r14]
    movaps xmm1,XMMWORD PTR [r14+0x10]
    movaps xmm2,XMMWORD PTR [r14+0x20]
    movaps xmm3,XMMWORD PTR [r14+0x30]
    movaps XMMWORD PTR [rax+0x20],xmm2
    movaps XMMWORD PTR [rax+0x30],xmm3
    movaps XMMWORD PTR [rax+0x10],xmm1
    movaps XMMWORD PTR [rax],xmm0
    mov rcx,rdx
    and rcx,rbx
    or rcx,r15
    mov QWORD PTR [rax+0x28],rcx
    lea ecx,[r13+0x1]
    mov r10d,r13d
    rol r10w,0x8
    mov WORD PTR [rax+0x3c],r10w
    mov WORD PTR [rax+0x14],dx
    add rax,0x40
    inc r12
    mov r13d,ecx
    test r11,r11
    jne 28
    jmp 23
27:
    test r11,r11
    je 23
28:
    lea rcx,[rsi+r12*8]
    mov rdx,QWORD PTR [rsp+0x48]
    add rdx,rcx
    add rdx,0xffffffffffffffc8
    xor esi,esi
    mov ecx,r13d
    xchg ax,ax
29:
    mov r10,QWORD PTR [rdx+rsi*1-0x8]
    movaps xmm0,XMMWORD PTR [r14]
    movaps xmm1,XMMWORD PTR [r14+0x10]
    movaps xmm2,XMMWORD PTR [r14+0x20]
    movaps xmm3,XMMWORD PTR [r14+0x30]
    movaps XMMWORD PTR [rax+rsi*8+0x20],xmm2
    movaps XMMWORD PTR [rax+rsi*8+0x30],xmm3
    movaps XMMWORD PTR [rax+rsi*8+0x10],xmm1
    movaps XMMWORD PTR [rax+rsi*8],xmm0
    mov r11,r10
    and r11,rbx
    or r11,r15
    mov QWORD PTR [rax+rsi*8+0x28],r11
    mov r11d,ecx
    rol r11w,0x8
    mov WORD PTR [rax+rsi*8+0x3c],r11w
    mov WORD PTR [rax+rsi*8+0x14],r10w
    mov r10,QWORD PTR [rdx+rsi*1]
    movaps xmm0,XMMWORD PTR [r14]
    movaps xmm1,XMMWORD PTR [r14+0x10]
    movaps xmm2,XMMWORD PTR [r14+0x20]
    movaps xmm3,XMMWORD PTR [r14+0x30]
    movaps XMMWORD PTR [rax+rsi*8+0x60],xmm2
    movaps XMMWORD PTR [rax+rsi*8+0x70],xmm3
    movaps XMMWORD PTR [rax+rsi*8+0x50],xmm1
    movaps XMMWORD PTR [rax+rsi*8+0x40],xmm0
    mov r11,r10
    and r11,rbx
    or r11,r15
    mov QWORD PTR [rax+rsi*8+0x68],r11
    lea r11d,[rcx+0x1]
    rol r11w,0x8
    mov WORD PTR [rax+rsi*8+0x7c],r11w
    add ecx,0x2
    mov WORD PTR [rax+rsi*8+0x54],r10w
    lea r10,[rax+rsi*8]
    add r10,0x80
    add rsi,0x10
    cmp r10,r9
    jne 29
    jmp 23
30:
    rol r13w,0x8
    shr rcx,0x20
    bswap ecx
    shr ecx,0x10
    and ecx,0x7fff
    add ecx,r13d
31:
    mov rax,QWORD PTR [rsp+0x60]
    mov WORD PTR [rax+0x58],cx
32:
    mov rdx,QWORD PTR [rsp+0x58]
    or dl,0xc
    mov rcx,QWORD PTR [rsp+0x68]
    shl rcx,0x6
    movups xmm0,XMMWORD PTR [rax]
    movups xmm1,XMMWORD PTR [rax+0x10]
    movups xmm2,XMMWORD PTR [rax+0x20]
    movups xmm3,XMMWORD PTR [rax+0x2f]
    mov rax,QWORD PTR [rsp+0x70]
    movups XMMWORD PTR [rax+rcx*1+0x2f],xmm3
    movups XMMWORD PTR [rax+rcx*1+0x20],xmm2
    movups XMMWORD PTR [rax+rcx*1+0x10],xmm1
    movups XMMWORD PTR [rax+rcx*1],xmm0
    mov BYTE PTR [rax+rcx*1+0x3f],dl
    mov rdi,QWORD PTR [rsp+0x78]
    mov QWORD PTR [rdi+0x8],rax
33:
    xor eax,eax
34:
    mov DWORD PTR [rdi],eax
    mov rax,rdi
    lea rsp,[rbp-0x28]
    pop rbx
    pop r12
    pop r13
    pop r14
    pop r15
    pop rbp
    ret
